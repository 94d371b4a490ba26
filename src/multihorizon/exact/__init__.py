"""Exact recovery by linear algebra: discounts and reward of soft-optimal experts, and what their policies identify.

Read in this order: `least_squares` (columns that depend on each other, and sparse null spaces), `equations` (what one policy
says of the reward, and what several say together), `linear_systems` (of all experts and of pairs), `equal_rewards`
(restrictions for one expert), `identify` (the discounts that solve them: one, many or none), `approximate` (the same where
rewards are only approximately shared), `closed_form` (the solver), `rewards` and `bounds` (all rewards that solve them, and
what they say of behaviour after a change).
"""
