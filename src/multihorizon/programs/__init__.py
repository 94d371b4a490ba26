"""The LP solvers: one reward and each expert's discount for experts who choose the best action.

Read in this order; each module uses only those above it:

* `inner`: the margins of chosen actions, and the programs on them at fixed discounts: Ω and the optimum g*(Γ);
* `search`: ascents over the discounts, the order of horizons (`SequentialLP`), and how much larger the optimum can be;
* `solvers`: `LPIRL`, `NaiveLP`, `MPLP`, and the evidence of an answer about the experts.
"""
