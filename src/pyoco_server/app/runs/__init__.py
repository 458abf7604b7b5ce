"""Use cases on runs: submit, command, read. One implementation of each, for every caller."""
