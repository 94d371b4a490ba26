"""The LP solvers: one reward and each expert's discount for experts who choose the best action.

Read in this order; each module uses only those above it:

* `margins`: by how much each chosen action is better, as sparse linear functions of reward and values;
* `inner`: the programs on the margins at fixed discounts: Ω and the optimum g*(Γ);
* `search`: ascents over the discounts, and the choice of the order of horizons (`SequentialLP`);
* `certificate`: a proof of how much larger the optimum can be;
* `solvers`: `LPIRL`, `NaiveLP`, `MPLP`, and the evidence of an answer about the experts.
"""
