"""A training that takes long, tells how far it is, stops when asked to, and goes on where it stopped."""
