"""Snapshots: projected from the log, stored, indexed."""
