"""Watchers of runs, and what they are sent."""
