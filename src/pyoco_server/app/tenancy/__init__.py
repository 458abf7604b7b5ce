"""The ports as one tenant sees them."""
