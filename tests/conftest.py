"""Shared settings: hypothesis draws the same examples on every machine, and slow machines fail no deadline."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")
