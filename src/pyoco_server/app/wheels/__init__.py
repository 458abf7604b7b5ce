"""The registry of wheels."""
