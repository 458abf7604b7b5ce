"""What requests and responses look like."""
