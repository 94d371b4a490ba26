"""The LP solvers: one reward and each expert's discount for experts who choose the best action.

Read in this order; each module uses only those above it:

* `margins`: by how much each chosen action is better, as sparse linear functions of reward and values;
* `highs`: one linear program, solved;  `model`: the programs on the margins;  `bases`: where to start them;
* `inner`: the optimum g*(Γ) at fixed discounts, with Ω and its slope;
* `climb`: from one Γ upwards;  `orders`: which order of horizons to climb in;  `sequential`: the search, `SequentialLP`;
* `relaxation`, `certificate`: a proof of how much larger the optimum can be;
* `contradiction`: a proof that no reward tells two experts apart;
* `answer`: what a reward explains, and how that is told;  `solvers`: `LPIRL`, `NaiveLP`, `MPLP`.
"""
