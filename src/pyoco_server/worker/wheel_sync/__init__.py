"""Keeps the code of a worker in step with the registry of wheels."""
