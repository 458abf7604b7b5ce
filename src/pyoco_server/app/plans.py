"""Plans made before: a flow that is run a thousand times is planned once."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from pyoco_server.flows.model import FlowModel, Network, Step, TaskStep
from pyoco_server.flows.plan import Plan, name_steps, plan

REMEMBERED: Final = 256


class Plans:
    """The newest plan of each flow, by name; a flow that has changed is planned anew.

    What is remembered is the graph. The steps are always the flow's own: two flows may be equal and yet differ in what
    a task is given, as 1 and True do.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[str, tuple[FlowModel, Plan]] = OrderedDict()

    def of(self, model: FlowModel) -> Plan:
        """The plan of a flow."""
        found = self._made.get(model.name)
        if found is not None and _equal(found[0], model):
            self._made.move_to_end(model.name)
            return Plan(found[1].graph, _steps(model))
        made = plan(model)
        self._made[model.name] = (model, made)
        if len(self._made) > REMEMBERED:
            self._made.popitem(last=False)
        return made


def _equal(one: FlowModel, other: FlowModel) -> bool:
    try:
        return one == other
    except Exception:  # noqa: BLE001 inputs may be anything, and some things (arrays) will not be compared
        return False


def _steps(model: FlowModel) -> Mapping[str, Step]:
    if isinstance(model.body, Network):
        return {task.name: TaskStep(task) for task in model.body.tasks}
    return dict(name_steps(model.body.steps))
