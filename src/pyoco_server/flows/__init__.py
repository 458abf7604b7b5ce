"""Flows: from what people write to what the core runs."""
