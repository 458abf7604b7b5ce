"""The worker: pulls jobs, drives their runs, and settles them."""
