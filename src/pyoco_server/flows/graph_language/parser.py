"""The parser of the graph language: everything that pyoco's parser reads, with the same meaning, and parallel groups.

The grammar is LALR(1): the parser keeps its own stack and reads every token once, so neither a deep nor a long graph
can exhaust it. Later stages recurse, so the depth is limited here.
"""

from functools import cache
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedToken, v_args

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.graph_language.ast import (
    Argument,
    Block,
    CaseTerm,
    GroupTerm,
    LoopTerm,
    Pipeline,
    PipeTerm,
    SwitchTerm,
    TaskTerm,
    Term,
    Word,
    last_argument,
)
from pyoco_server.flows.graph_language.lexer import end_token, tokens
from pyoco_server.flows.positions import Located, SourcePosition, instead_of, shown

MAX_NESTING = 64

GRAMMAR = r"""
start: pipeline

pipeline: term (_SHIFT term)*
?term: task | pipe | switch | loop | group

task: IDENT                       // the word 'default' and the words of blocks are names like any other
    | IDENT _COLON IDENT          -> named_task
pipe: PIPE LPAR (IDENT | STRING) _RPAR
switch: SWITCH arguments _LBRACE entry (_SEMI entry)* _RBRACE
entry:                            -> nothing
     | (IDENT | STRING | NUMBER | TEMPLATE) _COLON branch  -> case
?branch: pipeline
       | _QUOTE pipeline _UNQUOTE
loop: (REPEAT | FOREACH | UNTIL) arguments _LBRACE pipeline _RBRACE
group: LPAR pipeline (_AMP pipeline)* _RPAR

arguments: LPAR (argument (_COMMA argument)*)? _RPAR
argument: IDENT _EQUAL (IDENT | NUMBER | STRING | TEMPLATE)

%declare IDENT NUMBER STRING TEMPLATE
%declare PIPE SWITCH REPEAT FOREACH UNTIL
%declare LPAR _RPAR _LBRACE _RBRACE _COLON _SEMI _COMMA _EQUAL _AMP _SHIFT _QUOTE _UNQUOTE
"""

REQUIRED = {Block.SWITCH: "on", Block.REPEAT: "count", Block.FOREACH: "over", Block.UNTIL: "cond"}
"""The argument that a block must have."""

_NAMES = {
    "_SHIFT": "'>>'",
    "LPAR": "'('",
    "_RPAR": "')'",
    "_LBRACE": "'{'",
    "_RBRACE": "'}'",
    "_COLON": "':'",
    "_SEMI": "';'",
    "_COMMA": "','",
    "_EQUAL": "'='",
    "_AMP": "'&'",
    "_QUOTE": "a text in quotes",
    "_UNQUOTE": "the end of the text in quotes",
    "IDENT": "a name",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "TEMPLATE": "a template {{ }}",
    "$END": "the end",
}
_BLOCKS = frozenset(block.name for block in Block)
_STEPS = _BLOCKS | {"IDENT", "LPAR"}


def parse_graph(source: str | Located) -> Pipeline:
    """Return the syntax tree of a graph or pipe, or raise :class:`FlowSyntaxError`."""
    located = Located.whole(source) if isinstance(source, str) else source
    stream = [*tokens(located), end_token(located)]
    parser = _parser().parse_interactive()
    result: object = None
    depth = 0
    for position, token in enumerate(stream):
        depth += (token.type in {"LPAR", "_LBRACE"}) - (token.type in {"_RPAR", "_RBRACE"})
        if depth > MAX_NESTING:
            raise too_deep(_mark(token))
        try:
            result = parser.feed_token(token)
        except UnexpectedToken as error:
            raise _unexpected(stream[:position], token) from error
    return cast("Pipeline", result)


def too_deep(mark: SourcePosition) -> FlowSyntaxError:
    """Return the error for a graph with too many nested blocks."""
    return FlowSyntaxError(*mark, f"more than {MAX_NESTING} blocks inside each other", "make the graph flatter")


def _mark(token: Token) -> SourcePosition:
    return SourcePosition(token.line or 1, token.column or 1)


def _word(token: Token) -> Word:
    return Word(str(token), _mark(token))


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Makes terms as the parser recognises them. It has no state, so all threads share one."""

    def start(self, pipeline: Pipeline) -> Pipeline:
        return pipeline

    def pipeline(self, *terms: Term) -> Pipeline:
        return terms

    def task(self, name: Token) -> TaskTerm:
        return TaskTerm(_word(name))

    def named_task(self, node: Token, task: Token) -> TaskTerm:
        return TaskTerm(_word(task), _word(node))

    def pipe(self, _pipe: Token, _open: Token, name: Token) -> PipeTerm:
        return PipeTerm(_word(name))

    def switch(self, word: Token, arguments: tuple[Argument, ...], *entries: CaseTerm | None) -> SwitchTerm:
        _require(Block.SWITCH, word, arguments)
        return SwitchTerm(_mark(word), arguments, tuple(entry for entry in entries if entry is not None))

    def nothing(self) -> None:
        """There may be no case between two semicolons."""

    def case(self, key: Token, body: Pipeline) -> CaseTerm:
        return CaseTerm(_word(key), key.type == "IDENT" and key == "default", body)

    def loop(self, word: Token, arguments: tuple[Argument, ...], body: Pipeline) -> LoopTerm:
        block = Block[word.type]
        _require(block, word, arguments)
        return LoopTerm(block, _mark(word), arguments, body)

    def group(self, opening: Token, *branches: Pipeline) -> GroupTerm:
        return GroupTerm(_mark(opening), branches)

    def arguments(self, _open: Token, *arguments: Argument) -> tuple[Argument, ...]:
        return arguments

    def argument(self, name: Token, value: Token) -> Argument:
        return Argument(_word(name), _word(value))


@cache
def _parser() -> Lark:
    """Return the parser; it is built at the first graph, because that takes time and most commands read no graph."""
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), maybe_placeholders=False)


def _require(block: Block, word: Token, arguments: tuple[Argument, ...]) -> None:
    name = REQUIRED[block]
    value = last_argument(arguments, name)
    if value is None or not value.text:
        raise FlowSyntaxError(*_mark(word), f"{block} needs '{name}='", f"write {block}({name}=…){{ … }}")


# --- The error for a token that is not expected ----------------------------------------------------------------------


def _unexpected(before: list[Token], token: Token) -> FlowSyntaxError:
    fitting = _fitting(before)
    expected = f"expected {_list(fitting)}"
    if before:
        return _unexpected_after(before[-1], token, fitting, expected)
    if token.type == "$END":
        return FlowSyntaxError(*_mark(token), "the graph is empty", "name at least one task")
    return FlowSyntaxError(*_mark(token), f"{_shown(token)} cannot come first", expected)


def _fitting(before: list[Token]) -> set[str]:
    """Return the tokens that may come next, according to a new parser: an error changes the state of a parser."""
    parser = _parser().parse_interactive()
    for token in before:
        parser.feed_token(token)
    fitting: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    return fitting


def _unexpected_after(previous: Token, token: Token, fitting: set[str], expected: str) -> FlowSyntaxError:
    mark = _mark(token)
    if token.type == "$END":
        return FlowSyntaxError(*mark, f"the graph ends too early, after {_shown(previous)}", expected)
    if token.type == "LPAR" and previous.type == "IDENT":
        only = f"there are only {', '.join(Block)}; a task is just its name"
        remedy = instead_of(previous, [*Block], only)
        return FlowSyntaxError(*_mark(previous), f"there is no block {shown(previous)}", remedy)
    if previous.type == "LPAR" and token.type in {"NUMBER", "STRING", "TEMPLATE"} and "IDENT" in fitting:
        return FlowSyntaxError(*mark, f"{_shown(token)} has no name", "write name=value, as in repeat(count=3)")
    if token.type in _BLOCKS and previous.type == "_COLON":
        return FlowSyntaxError(*mark, "a block cannot have a name", "name tasks only (node:task)")
    if "_SHIFT" in fitting and token.type == "_AMP":
        return FlowSyntaxError(*mark, "'&' outside parentheses", "put parallel branches in parentheses: ( a & b )")
    if "_SHIFT" in fitting and token.type in _STEPS:
        return FlowSyntaxError(*mark, f"{_shown(token)} directly after {_shown(previous)}", "write '>>' between steps")
    return FlowSyntaxError(*mark, f"{_shown(token)} does not fit after {_shown(previous)}", expected)


def _shown(token: Token) -> str:
    if token.type in _NAMES and token.type not in {"STRING", "NUMBER", "IDENT", "TEMPLATE"}:
        return _NAMES[token.type]
    return shown(token)


def _list(fitting: set[str]) -> str:
    names = sorted({_NAMES[kind] for kind in fitting if kind in _NAMES})
    return " or ".join(names)
