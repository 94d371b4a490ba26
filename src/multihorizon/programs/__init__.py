"""Linear programs behind the LP solvers: the margins, the search over discounts, the certificate."""
