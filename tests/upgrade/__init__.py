"""An older version stops in the middle of its work, and this version continues it."""
