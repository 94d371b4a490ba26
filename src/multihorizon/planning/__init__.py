"""Planning: what a policy is worth, the best policy, the soft one, breakpoints in the discount."""
