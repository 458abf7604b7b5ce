"""How long to wait before another attempt: a pure function of the policy, the failures so far, and chance."""

import random

from pyoco_server.flows.model import Backoff, BackoffKind


def pause(backoff: Backoff, failures: int, chance: random.Random) -> float:
    """Seconds until the next attempt, after ``failures`` of them."""
    grown = backoff.delay_sec
    if backoff.kind is BackoffKind.EXPONENTIAL:
        # The exponent is bounded so that a very patient flow does not overflow a float on its way to the cap.
        grown *= backoff.factor ** min(failures - 1, 1_000 if backoff.factor <= 1 else 200)
    capped = min(grown, backoff.cap_sec)
    return capped * (1 - backoff.jitter * chance.random())
