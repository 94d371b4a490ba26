"""Solvers: one module each, a frozen dataclass of options with a `solve` method."""
