"""An older version stops in the middle of its work, and this one goes on with it."""
