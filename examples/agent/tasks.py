"""The functions agent.yaml names. All the agent knows of the past is in results of tasks, so the log has all of it."""

# mypy: disable-error-code="import-untyped"
from collections.abc import Callable
from typing import Any, Final

from examples.agent.model import Clerk, Model

from pyoco_server import TaskContext

MODEL: Final[Model] = Clerk()
TOOLS: Final[dict[str, Callable[..., Any]]] = {
    "look_up": lambda order: {"order": order, "amount": 128},
    "refund": lambda order, amount: {"order": order, "refunded": amount},
    "write_to": lambda customer, text: f"to {customer}: {text}",
}
ASK_FIRST: Final = frozenset({"refund"})
"""What a person must agree to. A list of ours, not of the model's: it must not be talked out of it."""


def think(ctx: TaskContext, goal: str) -> dict[str, Any]:
    """Let the model decide. Its decision is in the log before it is acted on, and is not asked for twice."""
    step = MODEL.next_step(goal, _history(ctx))
    if "answer" not in step and step.get("tool") not in TOOLS:
        raise ValueError(f"the model wants to use {step.get('tool')!r}, which there is not")
    return {**step, "needs": "approval" if step.get("tool") in ASK_FIRST else "nothing"}


def go_ahead() -> str:
    """Nothing to ask."""
    return "yes please"


def act(ctx: TaskContext, think: dict[str, Any]) -> dict[str, Any]:
    """Do it, if it may be done. Tools may be called twice if a worker dies: give them keys that make that harmless."""
    history = _history(ctx)
    if "answer" in think:
        return {"done": True, "answer": think["answer"], "history": history}
    # Results of earlier rounds are still there, so "approve" counts only in a round that asked for it.
    allowed = think["needs"] == "nothing" or ctx.results["approve"] == "yes please"
    result = TOOLS[think["tool"]](**think["arguments"]) if allowed else None
    turn = {"tool": think["tool"], "arguments": think["arguments"], "allowed": allowed, "result": result}
    return {"done": False, "history": [*history, turn]}


def answer(act: dict[str, Any]) -> str:
    """Return the answer, or say that the rounds are used up."""
    text: str = act.get("answer", "I have not come to an end")
    return text


def _history(ctx: TaskContext) -> list[dict[str, Any]]:
    """What happened in the rounds before: the result of the last ``act``, whichever worker did it."""
    last: dict[str, Any] = ctx.results.get("act") or {}
    return list(last.get("history", []))
