"""The model behind the agent. Put a call to a real one where ``next_step`` of :class:`Clerk` is."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Turn = Mapping[str, Any]
"""A step of the past: what was called with what, whether it was allowed, and what came of it."""


class Model(Protocol):
    """What an agent needs of a model: given the goal and what happened so far, the next step.

    A step is ``{"tool": name, "arguments": {…}}``, or ``{"answer": text}`` when there is nothing left to do. It goes
    into the log before anything is done about it, so it must be JSON.
    """

    def next_step(self, goal: str, history: Sequence[Turn]) -> dict[str, Any]:
        """Decide."""


class Clerk:
    """A model without a mind: looks up the order, refunds it, writes to the customer. Good for tests, and for free."""

    def next_step(self, goal: str, history: Sequence[Turn]) -> dict[str, Any]:
        """Return the first tool that was not used; an answer if all were used, or if a person refused one."""
        order = next((word.rstrip(".,") for word in goal.split() if "-" in word), "A-1")
        refused = [turn["tool"] for turn in history if not turn["allowed"]]
        if refused:
            return {"answer": f"{order}: I was not allowed to {refused[0]}"}
        match len(history):
            case 0:
                return {"tool": "look_up", "arguments": {"order": order}}
            case 1:
                return {"tool": "refund", "arguments": {"order": order, "amount": history[0]["result"]["amount"]}}
            case 2:
                return {"tool": "write_to", "arguments": {"customer": "Ada", "text": f"{order} is refunded"}}
            case _:
                return {"answer": f"{order}: refunded, and Ada knows"}
