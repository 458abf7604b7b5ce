"""Many pictures at once, and one that is made of them all."""
