"""How the cost of a run behaves as there is more of something: ``python -m bench.growth``."""
