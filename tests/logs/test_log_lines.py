"""What is in a log line."""

import asyncio
import io
import json
import logging
import os
import re
import threading
from collections import OrderedDict, UserDict
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from pyoco_server.logs import log_context, log_error
from pyoco_server.logs.formats import TextFormatter
from pyoco_server.messages import CATALOGUE
from tests.logs.log_lines import Line, lines_of, logger_into


def fail(word: str) -> None:
    raise ValueError(word)


def logged(extra: dict[str, object], message: str = "m") -> Line:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.info(message, extra=extra)
    (line,) = lines_of(stream.getvalue())
    return line


@pytest.mark.spec("004 REQ-0013")
def test_a_line_has_time_place_and_service() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.warning("%s of %d", "one", 2, extra={"run_id": "r1", "attempt": 3})
    (line,) = lines_of(stream.getvalue())
    moment = datetime.fromisoformat(line.pop("timestamp"))
    assert moment.utcoffset() == timedelta(0)
    assert isinstance(line.pop("line"), int)
    assert line == {
        "level": "WARNING",
        "service": "pyoco-server:http",
        "logger": "tests.logs",
        "message": "one of 2",
        "file": __file__,
        "function": "test_a_line_has_time_place_and_service",
        "process": os.getpid(),
        "thread": threading.current_thread().name,
        "run_id": "r1",
        "attempt": 3,
    }


def test_local_time_has_its_offset() -> None:
    stream = io.StringIO()
    with logger_into(stream, utc=False) as logger:
        logger.info("m")
    moment = datetime.fromisoformat(lines_of(stream.getvalue())[0]["timestamp"])
    assert moment.utcoffset() == moment.astimezone().utcoffset()


@pytest.mark.spec("004 REQ-0013")
def test_an_exception_is_logged_with_class_text_place_and_traceback() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        try:
            fail("boom")
        except ValueError:
            logger.exception("it failed")
    (line,) = lines_of(stream.getvalue())
    assert line["exception_class"] == "ValueError"
    assert line["exception_message"] == "boom"
    assert line["exception_at"] == f"{__file__}:{fail.__code__.co_firstlineno + 1} fail"
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert "raise ValueError(word)" in line["traceback"]


def test_without_the_traceback_the_place_is_still_logged() -> None:
    stream = io.StringIO()
    with logger_into(stream, traceback=False) as logger:
        try:
            fail("boom")
        except ValueError:
            logger.exception("it failed", stack_info=True)
    (line,) = lines_of(stream.getvalue())
    assert "traceback" not in line
    assert (line["exception_class"], line["exception_message"]) == ("ValueError", "boom")
    assert line["exception_at"].endswith(" fail")
    assert "Stack" in line["stack"]


def test_an_exception_that_was_never_raised_is_logged() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.error("m", exc_info=msgspec.ValidationError("x"))
        logger.error("m", exc_info=True)  # noqa: LOG014 (that is what is tried here)
    first, second = lines_of(stream.getvalue())
    assert first["exception_class"] == "msgspec.ValidationError"
    assert "exception_at" not in first
    assert "exception_class" not in second


class Speechless(Exception):  # noqa: N818 (a name for what it does)
    @override
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_with_a_broken_str_is_logged() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.error("m", exc_info=Speechless())
    (line,) = lines_of(stream.getvalue())
    assert (line["exception_class"], line["exception_message"]) == (f"{__name__}.Speechless", "Speechless()")


def test_an_exception_known_by_its_text_is_logged() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.handle(logging.makeLogRecord({"msg": "m", "levelno": 40, "exc_text": "Traceback: from elsewhere"}))
    (line,) = lines_of(stream.getvalue())
    assert line["traceback"] == "Traceback: from elsewhere"


def test_context_applies_inside_its_block_only() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        with log_context(run_id="r1", tag="gpu"):
            with log_context(run_id="r2"):
                logger.info("inner", extra={"tag": "cpu"})
            logger.info("outer")
        logger.info("after")
    inner, outer, after = lines_of(stream.getvalue())
    assert (inner["run_id"], inner["tag"]) == ("r2", "cpu")
    assert (outer["run_id"], outer["tag"]) == ("r1", "gpu")
    assert "run_id" not in after


def test_context_follows_tasks_and_threads_and_keeps_them_apart() -> None:
    stream = io.StringIO()

    async def work(logger: logging.Logger, run_id: str, turn: asyncio.Barrier) -> None:
        with log_context(run_id=run_id):
            await turn.wait()  # both are inside now
            logger.info(run_id)
            await asyncio.to_thread(logger.info, run_id)
            await asyncio.create_task(asyncio.to_thread(logger.info, run_id))

    async def both(logger: logging.Logger) -> None:
        turn = asyncio.Barrier(2)
        with log_context(worker_id="w"):
            await asyncio.gather(work(logger, "r1", turn), work(logger, "r2", turn))

    with logger_into(stream) as logger:
        asyncio.run(both(logger))
    lines = lines_of(stream.getvalue())
    assert len(lines) == 6
    assert all((line["run_id"], line["worker_id"]) == (line["message"], "w") for line in lines)


def test_a_context_is_left_when_its_body_fails() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        with pytest.raises(ValueError, match="boom"), log_context(run_id="r1"):
            fail("boom")
        logger.info("after")
    assert "run_id" not in lines_of(stream.getvalue())[0]


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Unprintable:
    @override
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_json_knows_are_written_as_they_are() -> None:
    given_values = {"a": None, "b": True, "c": 1.5, "d": [1, ("x", {"y": 2})], "e": Colour.RED, "f": Level.LOW}
    line = logged({**given_values, "g": MappingProxyType({"k": 1}), "h": OrderedDict(z=1)})
    assert {key: line[key] for key in "abcdef"} == {**given_values, "d": [1, ["x", {"y": 2}]], "e": "red", "f": 1}
    assert (line["g"], line["h"]) == ({"k": 1}, {"z": 1})


def test_values_json_does_not_know_are_written_by_repr() -> None:
    line = logged(
        {"path": Path("/x"), "nan": float("nan"), "raw": b"\xff", "set": {1}, "bad": Unprintable(), "t": {(1,): 2}}
    )
    assert line["path"] == repr(Path("/x"))
    assert (line["nan"], line["raw"], line["set"], line["t"]) == ("nan", "b'\\xff'", "{1}", {"(1,)": 2})
    assert line["bad"] == "<Unprintable without a repr: RuntimeError>"


class Moody(UserDict[str, int]):
    @override
    def __getitem__(self, key: str) -> int:
        raise RuntimeError("not now")


def test_a_mapping_that_cannot_be_read_is_written_by_repr() -> None:
    assert logged({"m": Moody(a=1)})["m"] == "{'a': 1}"


def test_every_value_is_cut() -> None:
    circle: list[object] = []
    circle.append(circle)
    shared: list[object] = [1]
    for _ in range(60):
        shared = [shared, shared]
    line = logged(
        {"circle": circle, "shared": shared, "wide": list(range(5000)), "big": 10**5000, "long": b"x" * 10**6}
    )
    assert line["wide"] == "<list of 5000>"
    assert "list of 1" in json.dumps(line["circle"])
    assert len(json.dumps(line)) < 50_000


def test_a_field_with_the_name_of_one_of_ours_gets_another_name() -> None:
    line = logged({"level": "mine", "service": "mine", "line": "mine", "timestamp": "mine"})
    assert (line["level"], line["level_"], line["service"], line["service_"]) == (
        "INFO",
        "mine",
        "pyoco-server:http",
        "mine",
    )
    assert (line["line_"], line["timestamp_"]) == ("mine", "mine")


def test_a_call_whose_arguments_do_not_match_is_logged() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.info("%d items", "many")
        logger.info("%s", Unprintable())
    first, second = lines_of(stream.getvalue())
    assert first["message"] == "'%d items' % ('many',)"
    assert "Unprintable" in second["message"] or "repr" in second["message"]


@pytest.mark.parametrize(
    "name",
    ["api_key", "X-API-Key", "Authorization", "pepper", "PYOCO_AUTH_PEPPER", "password", "nats_token", "client_secret"],
)
def test_secrets_are_hidden_by_their_name(name: str) -> None:
    line = logged({name: "s3cret", "headers": {name: "s3cret", "deep": [{name: "s3cret"}]}})
    assert line[name] == "***"
    assert line["headers"] == {name: "***", "deep": [{name: "***"}]}


def test_secrets_are_hidden_in_the_context_and_public_ids_are_not() -> None:
    with log_context(api_key="s3cret", api_key_id="k1", tenant_id="t1"):
        line = logged({})
    assert (line["api_key"], line["api_key_id"], line["tenant_id"]) == ("***", "k1", "t1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot reach nats://me:s3cret@host:4222", "cannot reach nats://***@host:4222"),
        ("GET /runs?api_key=s3cret&limit=1", "GET /runs?api_key=***&limit=1"),
        ("{'X-API-Key': 's3cret', 'a': 'b'}", "{'X-API-Key': '***', 'a': 'b'}"),
        ("Authorization: Bearer s3cret", "Authorization: ***"),
        ("PYOCO_AUTH_PEPPER=s3cret", "PYOCO_AUTH_PEPPER=***"),
        ("api_key_id=k1 and http://host/path@2", "api_key_id=k1 and http://host/path@2"),
    ],
)
def test_secrets_are_hidden_in_texts(text: str, expected: str) -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        logger.error("%s", text, exc_info=ValueError(text), extra={"reason": text})
    (line,) = lines_of(stream.getvalue())
    assert (line["message"], line["exception_message"], line["reason"]) == (expected, expected, expected)
    assert "s3cret" not in stream.getvalue()


def test_an_error_of_the_catalogue_has_its_ids_texts_and_remedy() -> None:
    stream = io.StringIO()
    with logger_into(stream) as logger:
        try:
            fail("boom")
        except ValueError as error:
            log_error(
                logger, "ERR-PYOCO-0011", action="dead_letter_lost", exc=error, run_id="r1", name="x", reason="why"
            )
    (line,) = lines_of(stream.getvalue())
    entry = CATALOGUE["ERR-PYOCO-0011"]
    assert (line["message"], line["message_ja"], line["remedy"]) == (entry.en, entry.ja, entry.action_en)
    assert (line["err_id"], line["msg_id"]) == ("ERR-PYOCO-0011", "MSG-PYOCO-0011")
    assert (line["level"], line["action"]) == ("ERROR", "dead_letter_lost")
    assert (line["run_id"], line["reason"], line["name_"]) == ("r1", "why", "x")
    assert (line["file"], line["function"]) == (__file__, "test_an_error_of_the_catalogue_has_its_ids_texts_and_remedy")
    assert line["exception_message"] == "boom"


@pytest.mark.spec("004 REQ-0013")
def test_a_common_error_has_its_traceback_on_one_line() -> None:
    stream = io.StringIO()
    with logger_into(stream, TextFormatter) as logger:
        try:
            fail("boom")
        except ValueError as error:
            log_error(logger, "ERR-PYOCO-0005", action="request_rejected", exc=error, one_line=True)
    (line,) = stream.getvalue().splitlines()
    assert " message_ja=runが見つかりません " in line
    assert re.search(r' traceback="test_log_lines.py:\d+ test_\w+ > test_log_lines.py:\d+ fail" ', line), line
    assert "exception_class=ValueError exception_message=boom" in line
    assert "exception_at" not in line


def test_logging_an_unknown_id_is_an_error() -> None:
    with pytest.raises(KeyError):
        log_error(logging.getLogger(__name__), "ERR-PYOCO-9999", action="x")


def test_a_line_for_people_has_time_level_message_and_fields() -> None:
    stream = io.StringIO()
    with logger_into(stream, TextFormatter) as logger:
        logger.info("two\nlines \x1b[31m", extra={"run_id": "r1", "note": "two words", "n": 3})
        try:
            fail("boom")
        except ValueError:
            logger.exception("it failed")
    first, second, *rest = stream.getvalue().splitlines()
    assert " INFO pyoco-server:http tests.logs: two" in first
    assert second.startswith('    lines \\x1b[31m run_id=r1 note="two words" n=3 (')
    assert second.endswith(" test_a_line_for_people_has_time_level_message_and_fields)")
    assert "exception_class=ValueError exception_message=boom" in rest[0]
    assert rest[1] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest[1:])


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.complex_numbers()
    | st.builds(object)
    | st.builds(Unprintable)
    | st.dates(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.tuples(st.integers()), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)
names = st.text(st.characters(), min_size=1).filter(
    lambda name: name not in logging.makeLogRecord({}).__dict__ | {"message": 1}
)


@settings(deadline=None)
@given(st.text(st.characters()), st.dictionaries(names, anything), st.text(st.characters()))
def test_whatever_is_logged_is_one_line_of_json(message: str, extra: dict[str, object], reason: str) -> None:
    stream = io.StringIO()
    extra.pop("asctime", None)
    with logger_into(stream) as logger:
        logger.error(message, extra=extra, exc_info=ValueError(reason))
    text = stream.getvalue()
    assert text.isascii()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    line = msgspec.json.decode(text)  # strict: no NaN, no half surrogates
    assert line["level"] == "ERROR"
    assert line["exception_class"] == "ValueError"


@settings(deadline=None)
@given(st.text(st.characters()), st.dictionaries(names, anything))
def test_no_text_forges_a_line_for_people(message: str, extra: dict[str, object]) -> None:
    stream = io.StringIO()
    extra.pop("asctime", None)
    with logger_into(stream, TextFormatter) as logger:
        logger.error(message, extra=extra)
    first, *rest = stream.getvalue().removesuffix("\n").split("\n")
    assert datetime.fromisoformat(first.split(" ")[0]).utcoffset() == timedelta(0)
    assert all(line.startswith("    ") for line in rest)
