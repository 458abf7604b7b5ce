"""Drives one execution: commits, calls of user functions, results, waits."""
