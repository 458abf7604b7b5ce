"""A flow in a file of its own, with choices and parallel steps; its functions are plain Python."""
