"""The command line: thin commands over the engine. Nothing else in the package imports from here."""
