"""Values of user code as JSON that keeps their type, and values that are loaded, or found to be lost, when read."""
