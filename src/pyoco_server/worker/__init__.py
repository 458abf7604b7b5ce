"""The worker: pulls jobs, drives their runs, and says how they ended."""
