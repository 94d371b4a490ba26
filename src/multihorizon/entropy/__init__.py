"""Maximum causal entropy: its dual, the discounted likelihood, and the paper's theory as checks."""
