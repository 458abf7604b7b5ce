"""What runs in the environments of the candidates: their clients and workers. Nothing of our own is imported here."""
