"""Exact recovery by linear algebra: discounts and reward of soft-optimal experts, and what their policies identify.

Read in this order: `least_squares` (large sparse solves and their null spaces), `equations` (what one policy says of the
reward, and what several say together), `sets` (the discounts that solve them, one or many), `identify` (the verdict),
`closed_form` (the solver), `goals` (who can share a goal).
"""
