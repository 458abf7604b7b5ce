"""When an acknowledged message is on the disk."""
