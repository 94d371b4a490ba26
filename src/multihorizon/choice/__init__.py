"""How experts choose: the likelihood of their decisions as a function of reward, look-ahead and temperature.

Read in this order: `settings` (what is known and tied), `plans` (plans in listed states), `model` (likelihoods and derivatives),
`weighted` (look-ahead that is not a discount), `deviations` (random reward deviations), `surfaces` (policies on a grid),
`sieve_model` (continuous states), `trials` (decisions one by one).
"""
