"""Tables of decisions, transitions and features: files in, checked."""
