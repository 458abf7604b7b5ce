"""The documentation is complete and current, its links work, and its examples are real."""
