"""Wheels on a worker's disk: how they are installed, tried and imported."""
