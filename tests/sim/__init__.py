"""The simulator: the whole platform in one thread, one seed a world. See docs/simulator.md."""
