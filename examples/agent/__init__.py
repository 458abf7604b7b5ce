"""An agent that asks before it does what cannot be undone."""
