"""Finds what a process that died left undone, and does it: everything here follows from the log."""
