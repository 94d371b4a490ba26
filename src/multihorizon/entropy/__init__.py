"""Maximum causal entropy: its dual, the discounted likelihood, the paper's theory, and the solvers `MCE`, `MPML` and `MPMCE`.

Read in this order; each module uses only those above it:

* `dual`: the convex dual at fixed discounts, and how it is minimised;
* `discounted_likelihood`: the likelihood of the paper's baseline and its gradient in the discounts;
* `matching`: how well one reward can match every expert, and how that changes with the discounts;
* `theory`: the paper's statements as checks;
* `mce`: the solver `MCE`;  `order`: an order of the experts that no listing changes;  `mpml`: the solver `MPML`;
* `threshold`: the discounts of largest entropy among those that match;  `mpmce`: the solver `MPMCE`.
"""
