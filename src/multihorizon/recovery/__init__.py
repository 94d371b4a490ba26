"""Exact recovery by linear algebra: discounts and reward of soft-optimal experts, and what they identify."""
