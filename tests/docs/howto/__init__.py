"""The how-to guides work, and the files in deploy/ are valid."""
