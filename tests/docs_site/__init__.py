"""The documentation: complete, current, with links that lead somewhere and examples that happened."""
