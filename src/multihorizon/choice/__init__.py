"""How experts choose: the likelihood of their decisions as a function of reward, look-ahead and temperature.

Read in this order: `model` (what every model of choice has, and what is known and tied in it), `tabular` (states in a list),
`weighted` (look-ahead that is not a discount), `deviations` (random reward deviations), `surfaces`
(policies on a grid), `sieve_model` (continuous states).
"""
