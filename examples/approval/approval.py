"""A refund that a person decides on: the flow waits for days and holds no worker meanwhile."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
from typing import Any

from pyoco import Flow, task

from pyoco_server import wait

DAY_SEC = 24 * 60 * 60


@task
def find_order(order: str = "A-1001") -> dict[str, Any]:
    """Look up what the decision is about; it shows in the dashboard beside the question."""
    return {"order": order, "customer": "Ada", "amount": 128}


# The prompt becomes a form in the dashboard. What is sent back is the result of this step; after two days without an
# answer it is the default. Without a default the run would fail then.
decision = wait(
    "decision",
    prompt={
        "question": "Refund {{ results.find_order.amount }} to {{ results.find_order.customer }}?",
        "schema": {
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "by": {"type": "string"}, "note": {"type": "string"}},
            "required": ["approved", "by"],
        },
    },
    deadline_sec=2 * DAY_SEC,
    default={"approved": False, "by": "no answer in time"},
)


@task
def settle(find_order: dict[str, Any], decision: dict[str, Any]) -> dict[str, Any]:
    """Do what was decided. An answer that does not fit the schema never comes this far."""
    amount = find_order["amount"] if decision["approved"] else 0
    return {"order": find_order["order"], "refunded": amount, "decided_by": decision["by"]}


refund = Flow("refund") >> find_order >> decision >> settle
