"""A study of people: effects of covariates, the spread of people, and each person's value.

Read in this order: `covariates` (the formula), `marginal` (the likelihood with people averaged out), `maximum` (where it is
highest, and what is known there), `solver` (what follows from it) and `findings` (what is said of it). `free` is a distribution
of any shape, and `types` are people or episodes without a name, of a few kinds.
"""
