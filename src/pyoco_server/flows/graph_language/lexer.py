"""The lexer of the graph language: cuts a graph into tokens.

Names and numbers are recognised as pyoco does it, character by character and for all of Unicode. Two decisions are made
here because they need the neighbouring tokens: a word like ``repeat`` opens a block only if a parenthesis follows, and
a text after a colon is a branch in quotes, whose own tokens replace the text.
"""

import re
from collections.abc import Iterator

from lark import Token

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.graph_language.ast import Block
from pyoco_server.flows.positions import Located, shown

SIGNS = {
    ">>": "_SHIFT",
    "(": "LPAR",
    ")": "_RPAR",
    "{": "_LBRACE",
    "}": "_RBRACE",
    ":": "_COLON",
    ";": "_SEMI",
    ",": "_COMMA",
    "=": "_EQUAL",
    "&": "_AMP",
}
QUOTE, UNQUOTE = "_QUOTE", "_UNQUOTE"

_PIECE = re.compile(
    r"""(?P<skip>[ \t\r\n]+|\#[^\n]*)
    |(?P<template>\{\{(?P<inner>.*?)\}\})
    |(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
    |(?P<unclosed>\{\{|['"])
    |(?P<sign>>>|[(){}:;,=&])
    |(?P<word>\w+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_BLOCKS = {block.value: block.name for block in Block}


def tokens(source: Located) -> list[Token]:
    """Return the tokens of a graph; line and column of each are those of the file."""
    found: list[Token] = []
    for token, text in _pieces(source):
        previous = found[-1] if found else None
        if token.type == "LPAR" and previous is not None and previous.type == "IDENT" and previous in _BLOCKS:
            found[-1] = previous.update(type=_BLOCKS[previous])
        if token.type == "STRING" and text is not None and previous is not None and previous.type == "_COLON":
            # Each level of quotes doubles the backslashes, so this recursion cannot be deep.
            found += [token.update(type=QUOTE), *tokens(text), _token(UNQUOTE, "", text, len(text.text))]
        else:
            found.append(token)
    return found


def end_token(source: Located) -> Token:
    """Return the token for the end of the text."""
    return _token("$END", "", source, len(source.text))


def _token(kind: str, value: str, source: Located, index: int) -> Token:
    mark = source.mark(index)
    return Token(kind, value, line=mark.line, column=mark.column)


def _pieces(source: Located) -> Iterator[tuple[Token, Located | None]]:
    """Return each token; with the places of its characters if it is a text in quotes."""
    position = 0
    while found := _PIECE.match(source.text, position):
        at, position = position, found.end()
        match found.lastgroup:
            case "skip":
                continue
            case "template":
                yield _token("TEMPLATE", "{{" + found["inner"].strip() + "}}", source, at), None
            case "text":
                text = _unquoted(source, at + 1, position - 1)
                yield _token("STRING", text.text, source, at), text
            case "sign":
                yield _token(SIGNS[found[0]], found[0], source, at), None
            case "word":
                token = _word(source, at, found[0])
                position = at + len(token)
                yield token, None
            case _:
                raise _refused(source, at, found[0])


def _unquoted(source: Located, start: int, end: int) -> Located:
    """Return the text between the quotes; a backslash makes the next character an ordinary one."""
    kept: list[int] = []
    index = start
    while index < end:
        index += source.text[index] == "\\"
        kept.append(index)
        index += 1
    return source.pick(kept, end)


def _word(source: Located, at: int, word: str) -> Token:
    """A number is the digits at the beginning; a name is all of it."""
    if word[0].isdigit():
        digits = next((index for index, character in enumerate(word) if not character.isdigit()), len(word))
        return _token("NUMBER", word[:digits], source, at)
    if word[0].isalpha() or word[0] == "_":
        return _token("IDENT", word, source, at)
    raise _refused(source, at, word[0])


def _refused(source: Located, at: int, what: str) -> FlowSyntaxError:
    mark = source.mark(at)
    match what:
        case "{{":
            return FlowSyntaxError(*mark, "this template has no end", "close it with '}}'")
        case "'" | '"':
            return FlowSyntaxError(*mark, "this text in quotes has no end", f"close it with {what}")
        case ">":
            return FlowSyntaxError(*mark, "a single '>'", "write '>>' between steps")
        case "|":
            return FlowSyntaxError(*mark, "'|' means nothing in a graph", "write switch(on=…){ … } for a choice")
        case "-":
            remedy = "write '>>' between steps; names have letters, digits and '_' only"
            return FlowSyntaxError(*mark, "'-' means nothing in a graph", remedy)
        case "“" | "”" | "‘" | "’" | "«" | "»" | "„":
            return FlowSyntaxError(*mark, f"{what} is not a quotation mark here", "write ' or \"")
        case _:
            return FlowSyntaxError(
                *mark,
                f"the character {shown(what)} means nothing here",
                "put names with dots and expressions in {{ }} or in quotes",
            )
