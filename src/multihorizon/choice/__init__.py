"""How experts choose: the likelihood of their decisions as a function of reward, look-ahead and temperature.

Read in this order: `parameters` (what is estimated, tied and known), `tabular` (states in a list), `weighted` (look-ahead that is
not a discount), `basis` and `sieve` (states that are vectors).
"""
