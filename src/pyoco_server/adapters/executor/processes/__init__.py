"""Child processes that run user functions."""
