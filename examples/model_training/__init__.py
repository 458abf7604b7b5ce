"""A long training that reports its progress, stops when asked to, and continues where it stopped."""
