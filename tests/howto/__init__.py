"""The how-to guides do what they say, and the files in deploy/ fit the programs they are for."""
