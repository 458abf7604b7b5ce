"""A NATS cluster of three nodes as docs/production.md describes it, and what it must bear."""
