"""Maximum causal entropy: its dual, the discounted likelihood, the solvers `MCE`, `MPML` and `MPMCE`, and the paper's theory.

Read in this order; each module uses only those above it:

* `mce_dual`: the convex dual at fixed discounts;  `mce`: the solver `MCE`;
* `discounted_likelihood`: the likelihood of the paper's baseline and its gradient;  `mpml`: the solver `MPML`;
* `matching`: how well one reward can match every expert, and how that changes with the discounts;
* `threshold`: the discounts of largest entropy among those that match;  `mpmce`: the solver `MPMCE`;
* `theory`: the paper's statements as checks.
"""
