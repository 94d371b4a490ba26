"""Maximum causal entropy: the solvers `MCE` (known discounts) and `MPMCE` (discounts searched).

Read in this order: `mce` (the convex dual at fixed discounts, how it is minimised, its gradient in the discounts), `mpmce` (the
three rules of the search, and the climb to the largest entropy among discounts that match).
"""
