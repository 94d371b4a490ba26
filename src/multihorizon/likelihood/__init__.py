"""From logged decisions to estimates: likelihood, uncertainty, tests, model checks."""
