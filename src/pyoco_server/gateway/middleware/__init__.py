"""What every request passes before a route handles it."""
