"""What ``python -m bench`` measures, one module a subject: each has ``rows``, which returns the rows of the table."""
