"""What is released: the same bytes each time, complete, usable once installed, typed for those who use it."""
