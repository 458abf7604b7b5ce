"""What the core costs, and how the cost grows with the size of the graph.

Figures of one run are comparable with each other only; read the ratios. Every row is the best of several rounds, since
noise only ever adds.
"""

import gc
import itertools
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pyoco_server.core import Event, Graph, advance, decode_event, encode_event, fold, initial_state, orchestrate
from pyoco_server.core.commands import Command, CreateExecution, StartExecution, StartNode, SucceedNode
from pyoco_server.core.events import Actor, ActorKind
from pyoco_server.core.graph import Edge, GraphNode

SIZES = (100, 1_000, 10_000)
ROUNDS = 9
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXECUTION = "bench"
ACTOR = Actor(ActorKind.SYSTEM, "bench")
FOLD_LIMIT = 1.5


def chain(size: int) -> Graph:
    """Tasks one after the other."""
    tasks = [f"task-{number}" for number in range(size)]
    nodes = [_node("start", "Start"), *(_node(task, "Task") for task in tasks), _node("end", "Success")]
    path = ["start", *tasks, "end"]
    return Graph("chain", nodes, [Edge(source, target) for source, target in itertools.pairwise(path)])


def fan(size: int) -> Graph:
    """Tasks side by side between a fork and a join."""
    tasks = [f"task-{number}" for number in range(size)]
    control = [_node("start", "Start"), _node("fork", "Fork"), _node("join", "Join"), _node("end", "Success")]
    edges = [Edge("start", "fork"), Edge("join", "end")]
    for task in tasks:
        edges += [Edge("fork", task), Edge(task, "join")]
    return Graph("fan", [*control, *(_node(task, "Task") for task in tasks)], edges)


def _node(node_id: str, node_type: str) -> GraphNode:
    return GraphNode(node_id=node_id, node_type=node_type)


class Drive(NamedTuple):
    """A whole execution: what was asked, what came of it, and how long the asking took."""

    commands: int
    log: list[Event]
    seconds: float


def drive(graph: Graph) -> Drive:
    """Run the execution to its end, every task started and succeeded by a command of its own."""
    numbers = itertools.count()
    state = initial_state(EXECUTION)
    log: list[Event] = []
    commands: list[Command] = [
        CreateExecution(execution_id=EXECUTION, actor=ACTOR, graph_id=graph.graph_id),
        StartExecution(execution_id=EXECUTION, actor=ACTOR),
    ]
    for node_id in graph.order:
        if graph.nodes[node_id].node_type == "Task":
            commands.append(StartNode(execution_id=EXECUTION, actor=ACTOR, node_id=node_id))
            commands.append(SucceedNode(execution_id=EXECUTION, actor=ACTOR, node_id=node_id, output={"n": 1}))
    began = time.perf_counter()
    for command in commands:
        commit = advance(graph, state, command, now=NOW, new_id=lambda: f"event-{next(numbers)}")
        state = fold(commit, state)
        log += commit
    seconds = time.perf_counter() - began
    if state.status != "COMPLETED" or orchestrate(graph, state, now=NOW, new_id=str):
        raise RuntimeError(f"the {graph.graph_id} did not run to its end: {state.status}")
    return Drive(len(commands), log, seconds)


def timed(work: Callable[[], object]) -> float:
    """Seconds the shortest of several rounds of ``work`` took."""
    return min(_once(work) for _ in range(ROUNDS))


def _once(work: Callable[[], object]) -> float:
    gc.collect()  # the garbage of one round is not charged to the next
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Cost(NamedTuple):
    """What one size costs, in microseconds an event."""

    size: int
    commands: int
    events: int
    fold: float
    step: float


def growth(shape: Callable[[int], Graph]) -> list[Cost]:
    """Fold and advance over one shape at every size. Rounds go over all sizes in turn, so that all share the noise."""
    graphs = {size: shape(size) for size in SIZES}
    runs = {size: drive(graph) for size, graph in graphs.items()}
    folds, steps = dict.fromkeys(SIZES, float("inf")), dict.fromkeys(SIZES, float("inf"))
    for _ in range(ROUNDS):
        for size in SIZES:
            log = runs[size].log
            repeat = max(1, SIZES[-1] // size // 4)  # a short log is folded several times, or the clock is too coarse
            folds[size] = min(folds[size], _once(lambda log=log, n=repeat: [fold(log) for _ in range(n)]) / repeat)  # type: ignore[misc]
            steps[size] = min(steps[size], drive(graphs[size]).seconds)
    return [_cost(size, runs[size], folds[size], steps[size]) for size in SIZES]


def _cost(size: int, run: Drive, fold_seconds: float, step_seconds: float) -> Cost:
    events = len(run.log)
    return Cost(size, run.commands, events, fold_seconds / events * 1e6, step_seconds / events * 1e6)


def rows(shape: Callable[[int], Graph]) -> list[str]:
    """One line a size, with ratios to the smallest."""
    costs = growth(shape)
    first = costs[0]
    return [
        f"{shape.__name__:<6}{cost.size:>8,}{cost.events:>10,}{cost.fold:>10.2f}{cost.fold / first.fold:>8.2f}"
        f"{cost.step:>12.2f}{cost.step / first.step:>8.2f}{cost.commands / (cost.step * cost.events / 1e6):>14,.0f}"
        for cost in costs
    ]


def wire_rows() -> Sequence[str]:
    """What writing and reading an event costs."""
    log = drive(chain(1_000)).log
    lines = [encode_event(event) for event in log]
    encode = timed(lambda: [encode_event(event) for event in log]) / len(log)
    decode = timed(lambda: [decode_event(line) for line in lines]) / len(log)
    return [f"encode_event {1 / encode:>12,.0f} per second", f"decode_event {1 / decode:>12,.0f} per second"]


def main() -> None:
    """Print the tables."""
    print(f"{'':<6}{'':>8}{'':>10}{'fold':>10}{'':>8}{'advance+fold':>12}{'':>8}{'':>14}")
    print(
        f"{'shape':<6}{'tasks':>8}{'events':>10}{'us/event':>10}{'ratio':>8}"
        f"{'us/event':>12}{'ratio':>8}{'commands/s':>14}"
    )
    for shape in (chain, fan):
        print("\n".join(rows(shape)))
    print()
    print("\n".join(wire_rows()))
    print(f"\nGoal: the fold ratio stays below {FOLD_LIMIT}, and so does the other, up to {SIZES[-1]:,} tasks.")


if __name__ == "__main__":
    main()
