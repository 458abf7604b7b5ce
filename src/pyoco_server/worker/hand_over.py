"""Hand a job to a worker that has the code it needs.

A worker that cannot resolve a job's flow, or lacks functions that are next, asks the registry. While another live
worker of the tag may have them, the job goes back to the queue. That must not count against the job: after its first
delivery it is only delayed, from the second on it is replaced by a message that names the workers that declined it.

The queue does not know which worker has the code, so it may deliver the job to each slot of the workers that declined
it before another worker gets it. A worker that finds itself among those returns it without looking at the run, and with
a short delay.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import Delivery, WorkerRecord, WorkQueue
from pyoco_server.app.recovery.announced_flows import may_have
from pyoco_server.app.recovery.quarantine_history import without_what_the_log_has
from pyoco_server.app.runs.job import Job

FIRST_DELAY_SEC: Final = 0.2
LONGEST_DELAY_SEC: Final = 5.0
DECLINED_DELAY_SEC: Final = 0.5
"""The delay after a worker got a job that it had declined before."""
MOST_DECLINED: Final = 200
"""How many names a job carries; the oldest are dropped, and those workers may get the job once more."""


def candidates(
    workers: Sequence[WorkerRecord], job: Job, needs: Collection[str] | None, *, is_in_flow_yaml: bool
) -> list[str]:
    """Return the instances of these live workers that may have what the job needs and have not declined it.

    ``needs`` are names of tasks; None: the flow as a whole. Whether a worker can import what a flow.yaml refers to is
    not announced, so every worker may.
    """
    found = [str(worker.get("instance_id")) for worker in workers if job.tag in (worker.get("tags") or ())]
    able = {
        str(worker.get("instance_id"))
        for worker in workers
        if is_in_flow_yaml or may_have(worker, job.flow_name, needs or ())
    }
    return [instance for instance in found if instance in able and instance not in job.declined_by]


def delay_sec(times: int) -> float:
    """Return the delay of a job that was handed over so many times before."""
    return float(min(FIRST_DELAY_SEC * 2 ** min(times, 10), LONGEST_DELAY_SEC))


async def hand_over(delivery: Delivery, instance_id: str, queue: WorkQueue) -> None:
    """Return a job to the queue for another worker; ``instance_id`` declines it."""
    fields: dict[str, Any] = msgspec.json.decode(delivery.body)
    times, before = _times(fields), _declined(fields)
    if delivery.times_delivered == 1 and not delivery.is_last:
        await delivery.nak(DECLINED_DELAY_SEC if instance_id in before else delay_sec(times))
        return
    declined = [name for name in before if name != instance_id]
    changed = {
        **without_what_the_log_has(fields),
        "declined_by": [*declined, instance_id][-MOST_DECLINED:],
        "handed_over": times if instance_id in before else times + 1,
    }
    once = secrets.token_hex(8)  # a second job does no harm, but one that the queue takes for a duplicate is lost
    await queue.publish(delivery.tag, msgspec.json.encode(changed), dedup_id=f"{fields['run_id']}:handed-over:{once}")
    await delivery.ack()


def _times(fields: Mapping[str, Any]) -> int:
    times = fields.get("handed_over")
    return times if isinstance(times, int) and times >= 0 else 0


def _declined(fields: Mapping[str, Any]) -> list[str]:
    named = fields.get("declined_by")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
