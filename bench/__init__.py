"""Benchmarks: ratios from one run, never timed tests."""
