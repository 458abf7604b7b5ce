"""The garbage collector, for processes that make many short-lived objects and keep few."""

import gc


def collect_less_often() -> None:
    """Leave alone what was loaded at the start, and look for cycles less often: a seventh of a worker's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
