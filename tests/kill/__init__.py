"""Workers and servers that are killed, stopped and cut off, as real processes; and what must hold all the same."""
