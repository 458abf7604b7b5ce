"""A refund somebody has to agree to, within two days."""
