"""What the core costs, and how the cost grows with the size of the graph.

Figures of one run are comparable with each other only; read the ratios. Every row is the best of several rounds, since
noise only ever adds.
"""

import gc
import itertools
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from pyoco_server.core import Event, Graph, advance, decode_event, encode_event, fold, initial_state, orchestrate
from pyoco_server.core.commands import Command, CreateExecution, StartExecution, StartNode, SucceedNode
from pyoco_server.core.events import Actor, ActorKind
from pyoco_server.core.graph import Edge, GraphNode

SIZES = (100, 1_000, 10_000)
ROUNDS = 5
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXECUTION = "bench"
ACTOR = Actor(ActorKind.SYSTEM, "bench")
FOLD_LIMIT = 1.5
T = TypeVar("T")


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


def best(work: Callable[[], T], seconds: Callable[[T], float]) -> float:
    """The shortest of several rounds, with the garbage of one round not charged to the next."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        times.append(seconds(work()))
    return min(times)


def timed(work: Callable[[], object]) -> float:
    """Seconds the best round of ``work`` took."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return best(once, lambda seconds: seconds)


def growth(shape: Callable[[int], Graph]) -> list[str]:
    """Fold and advance over one shape at every size: microseconds, and the ratio to the smallest."""
    rows = []
    first: tuple[float, float] | None = None
    for size in SIZES:
        graph = shape(size)
        driven = drive(graph)
        events = len(driven.log)
        fold_cost = timed(lambda log=driven.log: fold(log)) / events * 1e6  # type: ignore[misc]  # bound per loop
        step_cost = best(lambda graph=graph: drive(graph), lambda run: run.seconds) / events * 1e6  # type: ignore[misc]
        first = first or (fold_cost, step_cost)
        rows.append(
            f"{shape.__name__:<6}{size:>8,}{events:>10,}{fold_cost:>10.2f}{fold_cost / first[0]:>8.2f}"
            f"{step_cost:>12.2f}{step_cost / first[1]:>8.2f}{driven.commands / (step_cost * events / 1e6):>14,.0f}"
        )
    return rows


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
        print("\n".join(growth(shape)))
    print()
    print("\n".join(wire_rows()))
    print(f"\nGoal: the fold ratio stays below {FOLD_LIMIT}, and so does the other, up to {SIZES[-1]:,} tasks.")


if __name__ == "__main__":
    main()
