"""The state of a run as text, for the message of a test that failed."""

from pyoco_server.core import ExecutionState, NodeState


def standing(state: ExecutionState) -> str:
    """The run's status, and a line for each node that the flow's author wrote, by name."""
    lines = [f"the run is {state.status.value}{_reason(state)}"]
    lines += [f"  {_node(node)}" for node in _written(state)]
    return "\n".join(lines)


def _reason(state: ExecutionState) -> str:
    if state.failure is not None:
        return f", failed at '{state.failure.get('failedNodeId')}'"
    if state.is_cancel_requested:
        return f", a cancel was requested (reason: {state.cancel_reason})"
    return ""


def _written(state: ExecutionState) -> list[NodeState]:
    """Starts, forks, joins and ends begin with a colon; tasks inside a block have their own name behind a slash."""
    names = sorted(name for name in state.nodes if not name.rpartition("/")[2].startswith(":"))
    return [state.nodes[name] for name in names]


def _node(node: NodeState) -> str:
    line = f"{node.node_id}: {node.status.value}"
    if node.attempt > 1:
        line += f", attempt {node.attempt}"
    if node.error:
        line += f", {node.error.get('code')}: {node.error.get('message')}"
    return line
