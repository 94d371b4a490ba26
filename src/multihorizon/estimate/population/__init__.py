"""A study of people: effects of covariates, the spread of persons, and each person's value.

Read in this order: `covariates` (the formula), `marginal` (the likelihood with persons averaged out, and its maximum), `solver`
(what follows from it).
"""
