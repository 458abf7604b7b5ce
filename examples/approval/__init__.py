"""A refund that a person must approve within two days."""
