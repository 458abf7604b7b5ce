"""Tools that write and check the generated documents, and run the long checks."""
