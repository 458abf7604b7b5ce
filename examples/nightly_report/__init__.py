"""A report from sources that are not always there."""
