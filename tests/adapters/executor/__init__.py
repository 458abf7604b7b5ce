"""The executor, with real threads and real processes."""
