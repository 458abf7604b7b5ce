"""The ``tasks:`` of a flow.yaml: reads each entry, follows ``use`` from one task to another, and makes TaskSpecs."""

import re
from collections.abc import Collection
from collections.abc import Mapping as AnyMapping
from typing import Any

import msgspec

from pyoco_server.flows.errors import FlowSyntaxError, OutOfBoundsError, PromptError
from pyoco_server.flows.expressions import check_path, check_variable
from pyoco_server.flows.graph_language.ast import Word
from pyoco_server.flows.model import (
    BACKOFF_OPTIONS,
    TASK_OPTIONS,
    Backoff,
    BackoffOption,
    FailPolicy,
    OnFailure,
    Origin,
    TaskSpec,
    WaitSpec,
    fixed_backoff,
)
from pyoco_server.flows.options import LARGEST
from pyoco_server.flows.positions import SourcePosition, shown
from pyoco_server.flows.prompts import check_environment
from pyoco_server.flows.yaml.fields import Fields, is_nothing, number_of, wrong
from pyoco_server.flows.yaml.reader import Mapping, Node, Scalar, plain

MAX_INPUTS = 256
MAX_USES = 32

TASK_KEYS = ("callable", "use", "inputs", "outputs", *TASK_OPTIONS, "wait")
WAIT_KEYS = ("key", "prompt", "deadline_sec", "default")
_TASK_HINTS = {
    "trigger_policy": "remove it; what a task waits for is said by the graph",
    "parallel_group": "remove it; write ( a & b ) in the graph",
    "depends_on": "remove it; write a >> b in the graph",
    "timeout": "did you mean 'timeout_sec'?",
}
_REFERENCE = re.compile(r"\$node\.[^.]+\.output(\..*)?|\$ctx\.params\..+|\$env\..+", re.DOTALL)
_REFERENCES = "write $node.<name>.output, $ctx.params.<name> or $env.<name>; other texts must not begin with '$'"
_CALLABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class _WrittenTask(msgspec.Struct, frozen=True):
    """A task as it was written: only what was given, under the names of TaskSpec, and ``fail_policy``."""

    given: dict[str, Any]
    mark: SourcePosition
    source_mark: SourcePosition
    """The place where its function is named; that of its own name if none is."""


class TaskBook:
    """All tasks of a flow.yaml; returns each by name, also a task that the file does not describe."""

    def __init__(self, tasks: Mapping | None, env: Collection[str] | None = None) -> None:
        """Read all entries; ``env`` are the environment variables that inputs may name, None means any."""
        entries = tasks.entries if tasks else {}
        self._written = {name: _read_task(name, entry.node, entry.key_mark, env) for name, entry in entries.items()}
        self._names = tuple(self._written)
        self._specs: dict[str, TaskSpec] = {name: self._finished(name) for name in self._written}

    def _finished(self, name: str) -> TaskSpec:
        spec, mark = _finish(name, self._given(name)), self._written[name].mark
        for other, is_set in (("retries", spec.retries > 0), ("recompute", spec.recompute)):
            if spec.at_most_once and is_set:
                problem = f"the task {shown(name)} has both 'at_most_once' and '{other}'"
                raise FlowSyntaxError(*mark, problem, f"remove one of them: {other} calls the function again")
        return spec

    def spec(self, task: str, node: str) -> TaskSpec:
        """Return the task under the name of a node.

        A task without its own function is looked up by name later. If the node has another name, ``use`` keeps the
        name to look for.
        """
        known = self._specs.get(task) or TaskSpec(name=task)
        if node != task:
            known = msgspec.structs.replace(known, name=node, **_source(task, known.callable, known.use, known.wait))
        if known.wait is not None and not known.wait.key:
            known = msgspec.structs.replace(known, wait=msgspec.structs.replace(known.wait, key=node))
        return known

    def origin(self, task: Word) -> Origin:
        """Return the place to show if a task that the graph names has no function."""
        known = task.text in self._written
        mark = self._written[self._chain(task.text)[-1]].source_mark if known else task.mark
        return Origin(*mark, self._names)

    def _given(self, name: str) -> dict[str, Any]:
        """Return the options of a task: those of the task it uses, overlaid by its own."""
        chain = self._chain(name)
        given = self._written[name].given if len(chain) == 1 else self._base(chain[-1])
        for user in reversed(chain[:-1]):
            given = _overlaid(given, self._written[user], user)
        return given

    def _chain(self, name: str) -> list[str]:
        """Return the task, the one it uses, the one that uses, and so on, as far as this file has them.

        A task that uses its own name means the one that is looked up by that name.
        """
        chain = [name]
        while (target := self._written[chain[-1]].given.get("use")) in self._written and target != chain[-1]:
            mark = self._written[chain[-1]].mark
            if target in chain:
                raise FlowSyntaxError(*mark, f"the task {shown(chain[-1])} uses itself", "name another task in 'use'")
            if len(chain) > MAX_USES:
                raise FlowSyntaxError(*mark, f"more than {MAX_USES} tasks use each other", "use the last one directly")
            chain.append(target)
        return chain

    def _base(self, name: str) -> dict[str, Any]:
        """Return the options of the task at the end of a chain; without its own function, with the name to look up."""
        given = self._written[name].given
        return given | _source(name, given.get("callable"), given.get("use"), given.get("wait"))


def _source(name: str, function: str | None, use: str | None, wait: WaitSpec | None) -> dict[str, Any]:
    return {} if function or use or wait else {"use": name}


def _overlaid(base: AnyMapping[str, Any], written: _WrittenTask, name: str) -> dict[str, Any]:
    """Overlay a task's options on those of the task it uses: inputs are merged, outputs added, the rest replaced."""
    own = {key: value for key, value in written.given.items() if key != "use"}
    if len(own.get("inputs", ())) + len(base.get("inputs", ())) > MAX_INPUTS:
        raise _too_many_inputs(written.mark, name)
    merged = {**base, **own}
    for key in base.keys() & own.keys() & {"inputs", "outputs"}:
        merged[key] = {**base[key], **own[key]} if key == "inputs" else base[key] + own[key]
    return merged


def _too_many_inputs(mark: SourcePosition, name: str) -> FlowSyntaxError:
    return FlowSyntaxError(
        *mark, f"the task {shown(name)} has more than {MAX_INPUTS} inputs", "put them together in one mapping"
    )


def _finish(name: str, given: AnyMapping[str, Any]) -> TaskSpec:
    """Return the TaskSpec; ``fail_policy`` becomes ``on_failure`` and ``retries``."""
    fields = dict(given)
    policy = fields.pop("fail_policy", FailPolicy.STOP)
    if policy is FailPolicy.RETRY:
        fields.setdefault("retries", 1)
    on_failure = OnFailure.ISOLATE if policy is FailPolicy.ISOLATE else OnFailure.STOP
    return TaskSpec(name=name, on_failure=on_failure, **fields)


def _read_task(name: str, node: Node, mark: SourcePosition, env: Collection[str] | None) -> _WrittenTask:
    what = f"task {shown(name)}"
    if is_nothing(node):
        raise wrong(node, what, "a mapping", f"write {name[:60]}: {{}} if it needs no options, or leave it out")
    fields = Fields(node, what, TASK_KEYS, _TASK_HINTS)
    given: dict[str, Any] = {
        "callable": _callable(fields),
        "use": fields.text("use"),
        "inputs": _inputs(fields, env),
        "outputs": fields.texts("outputs") or None,
        "wait": _wait(fields, env),
    }
    for key, option in TASK_OPTIONS.items():
        given[key] = _backoff(fields) if isinstance(option, BackoffOption) else fields.option(key, option)
    source = fields.node("callable") or fields.node("use")
    written = _WrittenTask(
        {key: value for key, value in given.items() if value is not None}, mark, source.mark if source else mark
    )
    sources = [key for key in ("callable", "use", "wait") if key in written.given]
    if len(sources) > 1:
        raise FlowSyntaxError(*mark, f"{what} has both '{sources[0]}' and '{sources[1]}'", "keep one of them")
    if len(written.given.get("inputs", ())) > MAX_INPUTS:
        raise _too_many_inputs(mark, name)
    return written


def _inputs(fields: Fields, env: Collection[str] | None) -> dict[str, Any] | None:
    """Return the inputs: values, and references, which are texts that begin with ``$``."""
    mapping = fields.mapping("inputs")
    for entry in mapping.entries.values() if mapping else ():
        value = plain(entry.node) if isinstance(entry.node, Scalar) else None
        if isinstance(value, str) and value.startswith("$"):
            _check_reference(value, entry.node.mark, env)
    return fields.values("inputs") or None


def _check_reference(reference: str, mark: SourcePosition, env: Collection[str] | None) -> None:
    if not _REFERENCE.fullmatch(reference):
        raise FlowSyntaxError(*mark, f"{shown(reference)} is not a reference", _REFERENCES)
    try:
        if reference.startswith("$env."):
            check_variable(reference.removeprefix("$env."), env)
        else:
            check_path(reference)
    except OutOfBoundsError as error:
        raise FlowSyntaxError(*mark, error.problem, error.remedy) from error


def _callable(fields: Fields) -> str | None:
    path = fields.text("callable")
    node = fields.node("callable")
    if path is None or node is None or _CALLABLE.fullmatch(path):
        return path
    what = fields.name("callable")
    raise FlowSyntaxError(*node.mark, f"{what} cannot be {shown(path)}", "write module.path:function")


def _backoff(fields: Fields) -> Backoff | None:
    node = fields.node("backoff")
    if node is None:
        return None
    if not isinstance(node, Mapping):
        return fixed_backoff(number_of(node, fields.name("backoff"), 0, LARGEST))
    inner = Fields(node, fields.name("backoff"), tuple(BACKOFF_OPTIONS))
    given = {name: inner.option(name, option) for name, option in BACKOFF_OPTIONS.items()}
    base = Backoff() if given["delay_sec"] is None else fixed_backoff(given["delay_sec"])
    return msgspec.structs.replace(base, **{key: value for key, value in given.items() if value is not None})


def _wait(fields: Fields, env: Collection[str] | None) -> WaitSpec | None:
    written = fields.written("wait")
    if written is None:
        return None
    inner = Fields(written.node, fields.name("wait"), WAIT_KEYS)
    default = inner.written("default")
    return WaitSpec(
        key=inner.text("key") or "",  # empty: TaskBook.spec puts the name of the node here
        prompt=_prompt(inner, env),
        deadline_sec=inner.seconds("deadline_sec"),
        has_default=default is not None,
        default=plain(default.node) if default else None,
    )


def _prompt(fields: Fields, env: Collection[str] | None) -> dict[str, Any]:
    node = fields.node("prompt")
    prompt = {"text": fields.text("prompt")} if isinstance(node, Scalar) else fields.values("prompt")
    if node is not None and env is not None:
        try:
            check_environment(prompt, env)
        except PromptError as error:
            raise FlowSyntaxError(*node.mark, str(error), "show a result or a parameter instead") from error
    return prompt
