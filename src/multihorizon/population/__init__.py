"""A study of people: effects of covariates, the spread of persons, and each person's value.

Read in this order: `covariates` (the formula), `marginal` (the likelihood with persons averaged out, and its maximum), `solver`
(what follows from it). `free` is a distribution of any shape, and `types` are persons or episodes without a name, of a few kinds.
"""
