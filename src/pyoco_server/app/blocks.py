"""Steps that are more than a task: choices, loops, parallel groups.

A block is a node that stays at work while nodes inside it are created and run. Its code is run again from the beginning
by whoever takes over: nodes that ended are taken as they ended, so the same choices are made and the same ids given.

A task of a loop that isolates its failure ends its round, and the loop continues with the others (see ``app.rounds``).
"""

from functools import partial
from typing import Any

from pyoco.core.exceptions import SwitchNoMatch, UntilMaxIterationsExceeded  # type: ignore[import-untyped]

from pyoco_server.app.context import Place
from pyoco_server.app.rounds import BlockFailedError, ChildFailedError, Rounds
from pyoco_server.app.work import Work
from pyoco_server.flows.bounded_expressions import evaluate
from pyoco_server.flows.model import ForEach, Parallel, Repeat, Step, Steps, Switch, TaskStep, Until
from pyoco_server.flows.plan import name_steps
from pyoco_server.values.errors import lost_behind

DEFAULT_MAX_ITER = 1_000


async def run_block(work: Work, node_id: str, block: Step, place: Place) -> None:
    """Run what is inside a block."""
    match block:
        case Switch():
            await _switch(work, node_id, block, place)
        case Repeat():
            await _repeat(work, node_id, block, place)
        case ForEach():
            await _for_each(work, node_id, block, place)
        case Until():
            await _until(work, node_id, block, place)
        case Parallel():
            await _parallel(work, node_id, block, place)
        case TaskStep():  # last of a closed set
            raise TypeError("a task is not a block")


async def _body(work: Work, node_id: str, steps: Steps, place: Place) -> None:
    for child_id, step in name_steps(steps, f"{node_id}/"):
        await work.child(child_id, step, place)


async def _round(work: Work, node_id: str, steps: Steps, place: Place, rounds: Rounds) -> bool:
    """Run one round of a loop and count it; False if a task failed in it that isolates its failure."""
    rounds.begin()
    try:
        await _body(work, node_id, steps, place)
    except ChildFailedError as failure:
        rounds.fail(failure.node)
        if not failure.is_isolated:
            raise
        return False
    rounds.succeed()
    return True


async def _parallel(work: Work, node_id: str, block: Parallel, place: Place) -> None:
    """Run the branches side by side; an isolated failure ends its branch at once and the round when all have ended."""
    isolated: list[ChildFailedError] = []

    async def branch(index: int, steps: Steps) -> None:
        try:
            await _body(work, f"{node_id}[{index}]", steps, place)
        except ChildFailedError as failure:
            if not failure.is_isolated:
                raise
            isolated.append(failure)

    await work.together(node_id, [partial(branch, *one) for one in enumerate(block.branches)])
    if isolated:
        raise work.first_isolated(isolated)


async def _switch(work: Work, node_id: str, block: Switch, place: Place) -> None:
    value = await work.decide_once(node_id, "on", lambda: _evaluate(work, block.on, place))
    for case in block.cases:
        if case.value == value:
            await _body(work, node_id, case.body, place)
            return
    if block.default is None:
        raise BlockFailedError(SwitchNoMatch(block.on))
    await _body(work, node_id, block.default, place)


async def _repeat(work: Work, node_id: str, block: Repeat, place: Place) -> None:
    source = block.count
    if isinstance(source, int):
        count: Any = source
    else:
        count = await work.decide_once(node_id, "count", lambda: _evaluate(work, source, place))
    if not isinstance(count, int):
        raise BlockFailedError(TypeError("Repeat count must evaluate to an integer."))
    if count < 0:
        raise BlockFailedError(ValueError("Repeat count cannot be negative."))
    rounds = work.count_rounds(node_id, block.body, count)
    for index in range(count):
        frame = {"name": "repeat", "type": "repeat", "index": index, "iteration": index + 1, "count": count}
        await _round(work, f"{node_id}[{index}]", block.body, place.inside(frame), rounds)


async def _for_each(work: Work, node_id: str, block: ForEach, place: Place) -> None:
    items = await work.decide_once(node_id, "over", lambda: _evaluate(work, block.over, place))
    if not isinstance(items, list | tuple):
        raise BlockFailedError(TypeError("ForEach source must evaluate to a list or tuple."))
    waiting = iter(enumerate(items))
    rounds = work.count_rounds(node_id, block.body, len(items))

    async def one_after_the_other() -> None:
        for index, item in waiting:
            inside = _place_of_item(block, place, index, item, len(items))
            await _round(work, f"{node_id}[{index}]", block.body, inside, rounds)

    if items:
        await work.together(node_id, [one_after_the_other] * min(block.parallel, len(items)))


def _place_of_item(block: ForEach, place: Place, index: int, item: Any, count: int) -> Place:  # noqa: ANN401
    frame = {
        "name": f"foreach:{block.item or block.over}",
        "type": "foreach",
        "index": index,
        "iteration": index + 1,
        "count": count,
        "item": item,
    }
    variables = {name: value for name, value in ((block.item, item), (block.index, index)) if name}
    return place.inside(frame, **variables)


async def _until(work: Work, node_id: str, block: Until, place: Place) -> None:
    limit = block.max_iter or DEFAULT_MAX_ITER
    held: bool | None = None
    rounds = work.count_rounds(node_id, block.body)
    for index in range(limit):
        frame = {"name": "until", "type": "until", "index": index, "iteration": index + 1, "count": limit}
        inside = place.inside({**frame, "condition": held})
        is_complete = await _round(work, f"{node_id}[{index}]", block.body, inside, rounds)
        held = is_complete and await _holds(work, node_id, index, block.condition, inside)
        if held:
            return
    raise BlockFailedError(UntilMaxIterationsExceeded(block.condition, limit))


async def _holds(work: Work, node_id: str, index: int, condition: str, place: Place) -> bool:
    decided = await work.decide_once(node_id, f"round {index}", lambda: bool(_evaluate(work, condition, place)))
    return bool(decided)


def _evaluate(work: Work, source: str, place: Place) -> Any:  # noqa: ANN401 an expression has any value
    context = work.scope.context(place)
    try:
        return evaluate(source, ctx=context.expression_data(), env=context.env_data())
    except Exception as error:  # whatever an expression of the flow's author raises
        raise lost_behind(error) or BlockFailedError(error) from error
