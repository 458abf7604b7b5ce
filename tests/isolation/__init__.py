"""Where user functions run: real threads, real processes."""
