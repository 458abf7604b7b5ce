"""Reads a flow.yaml into a flow, and imports and runs nothing of it. ``docs/flow-yaml.md`` describes the format."""

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.graph_language.ast import Pipeline, task_terms
from pyoco_server.flows.graph_language.build import build_steps
from pyoco_server.flows.graph_language.parser import parse_graph
from pyoco_server.flows.graph_language.pipes import expand_pipes
from pyoco_server.flows.model import FlowModel, Program
from pyoco_server.flows.positions import SourcePosition, shown
from pyoco_server.flows.yaml.fields import Fields, text_node
from pyoco_server.flows.yaml.reader import MAX_BYTES, Scalar, plain, read_document
from pyoco_server.flows.yaml.tasks import TaskBook

FILE_KEYS = ("flow", "tasks", "pipes", "runtime", "version")
FLOW_KEYS = ("graph", "defaults")
RUNTIME_KEYS = ("expose_env",)
MAX_GRAPH_TEXT = 131_072
"""Characters in the graph and all pipes: far more than 4096 steps need, and parsed in about one second."""

_WRITE_A_FLOW = "write 'flow:' with 'graph:' inside"
_HINTS = {
    "flows": "a file holds one flow; write 'flow:' with 'graph:' inside",
    "discovery": "remove it; name functions with tasks.<name>.callable or tasks.<name>.use",
    "graph": "put it inside 'flow:'",
    "defaults": "put it inside 'flow:'",
    "expose_env": "put it inside 'runtime:'",
}


def read_flow_yaml(text: str | bytes, *, name: str, max_bytes: int = MAX_BYTES) -> FlowModel:
    """Read a flow.yaml.

    Raises :class:`FlowSyntaxError`, with the place of the problem and what to write instead, for anything that is not
    understood completely; :class:`FlowTooLargeError` (a subclass) if the file has more than ``max_bytes`` bytes.
    """
    document = read_document(text, max_bytes=max_bytes, if_empty=_WRITE_A_FLOW)
    file = Fields(document, "the file", FILE_KEYS, _HINTS)
    _check_version(file)
    flow = _flow(file)
    graph, pipes = _graph(flow), _pipes(file)
    _check_length([graph, *pipes.values()])
    expanded = expand_pipes(_parsed(graph), {name: _parsed(pipe) for name, pipe in pipes.items()})
    env = _expose_env(file)
    book = TaskBook(file.mapping("tasks"), env)
    return FlowModel(
        name=name,
        body=Program(build_steps(expanded, book.spec, env)),
        defaults=flow.values("defaults"),
        expose_env=env,
        origins={term.name.text: book.origin(term.task) for term in task_terms(expanded)},
    )


def _check_version(file: Fields) -> None:
    node = file.node("version")
    if node is None:
        return
    version = plain(node)
    if isinstance(version, bool) or not isinstance(version, int) or version != 1:
        raise FlowSyntaxError(*node.mark, "this version is not known", "write version: 1")


def _flow(file: Fields) -> Fields:
    node = file.node("flow")
    if node is None:
        written = file.written("flow")
        mark = written.key_mark if written else SourcePosition(1, 1)
        raise FlowSyntaxError(*mark, "the file has no flow", _WRITE_A_FLOW)
    return Fields(node, "'flow'", FLOW_KEYS)


def _graph(flow: Fields) -> Scalar:
    node = flow.node("graph")
    if node is None:
        written = flow.written("graph")
        mark = written.key_mark if written else flow.mark
        raise FlowSyntaxError(*mark, "the flow has no graph", "write 'graph: a >> b'")
    return text_node(node, flow.name("graph"), "write a >> b, or '|' and the graph on lines of its own")


def _pipes(file: Fields) -> dict[str, Scalar]:
    pipes = file.mapping("pipes")
    entries = pipes.entries if pipes else {}
    return {name: text_node(entry.node, f"pipe {shown(name)}") for name, entry in entries.items()}


def _check_length(graphs: list[Scalar]) -> None:
    if sum(len(str(graph.value)) for graph in graphs) > MAX_GRAPH_TEXT:
        raise FlowSyntaxError(
            *graphs[0].mark, f"graph and pipes have more than {MAX_GRAPH_TEXT} characters together", "shorten them"
        )


def _parsed(graph: Scalar) -> Pipeline:
    """Parse a graph or a pipe. Unused pipes are parsed, too, so that an error in one is found now."""
    return parse_graph(graph.located())


def _expose_env(file: Fields) -> tuple[str, ...]:
    node = file.node("runtime")
    return () if node is None else Fields(node, "'runtime'", RUNTIME_KEYS).texts("expose_env")
