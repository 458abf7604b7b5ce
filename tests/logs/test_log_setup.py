"""The log of a whole process: each in a process of its own."""

import json

import pytest

from tests.logs.log_lines import log_of, run

CONFIGURE = "from pyoco_server.logs import *\nimport logging, sys, warnings\n"


def test_the_default_is_json_of_level_info_on_stderr() -> None:
    program = CONFIGURE + (
        "configure_logging(service=WORKER_SERVICE)\n"
        "log = logging.getLogger('a.b')\n"
        "log.debug('quiet'); log.info('loud')\n"
    )
    (line,) = log_of(program)
    assert (line["service"], line["logger"], line["level"], line["message"]) == (
        "pyoco-server:worker",
        "a.b",
        "INFO",
        "loud",
    )


def test_a_second_configuration_replaces_the_first() -> None:
    program = CONFIGURE + (
        "logging.basicConfig()\n"
        "for service in ('one', 'two'):\n"
        "    configure_logging(service=service, level='debug')\n"
        "    logging.getLogger('x').debug('m')\n"
    )
    assert [line["service"] for line in log_of(program)] == ["one", "two"]


def test_handlers_that_write_elsewhere_stay() -> None:
    program = CONFIGURE + (
        "import io\n"
        "own = io.StringIO()\n"
        "logging.getLogger().addHandler(logging.StreamHandler(own))\n"
        "configure_logging(service='s')\n"
        "logging.getLogger('x').info('m')\n"
        "assert own.getvalue() == 'm\\n'\n"
    )
    assert len(log_of(program)) == 1


def test_warnings_are_logged() -> None:
    program = CONFIGURE + "configure_logging(service='s')\nwarnings.warn('old way', UserWarning)\n"
    (line,) = log_of(program)
    assert (line["logger"], line["level"]) == ("py.warnings", "WARNING")
    assert "UserWarning: old way" in line["message"]


@pytest.mark.spec("004 REQ-0013", "004 ERR-PYOCO-0013")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("level='LOUD'", "the level is 'LOUD', but must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
        ("format='xml'", "the format is 'xml', but must be json or text"),
    ],
)
def test_a_wrong_setting_is_replaced_and_logged(arguments: str, reason: str) -> None:
    program = CONFIGURE + f"configure_logging(service='s', {arguments})\nlogging.getLogger('x').info('goes on')\n"
    notice, after = log_of(program)
    assert (notice["err_id"], notice["msg_id"], notice["level"]) == ("ERR-PYOCO-0013", "MSG-PYOCO-0013", "ERROR")
    assert notice["reason"].startswith(reason)
    assert after["message"] == "goes on"


@pytest.mark.spec("004 REQ-0013")
def test_missing_arguments_are_read_from_the_environment() -> None:
    program = CONFIGURE + (
        "import os\n"
        "os.environ.update(PYOCO_LOG_LEVEL='warn', PYOCO_LOG_INCLUDE_TRACEBACK='0', PYOCO_LOG_FORMAT='JSON')\n"
        "configure_logging(service='s')\n"
        "log = logging.getLogger('x')\n"
        "log.info('too quiet')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: log.exception('hidden')\n"
        "configure_logging(service='s', level='INFO', include_traceback=True)\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: log.info('hidden too', exc_info=True)\n"
        "os.environ.update(PYOCO_LOG_FORMAT='text', PYOCO_LOG_UTC='no')\n"
        "os.environ['TZ'] = 'Asia/Tokyo'; import time; time.tzset()\n"
        "configure_logging(service='s', level='INFO', stream=sys.stdout)\n"
        "log.info('for people')\n"
    )
    done = run(program)
    notice, given = map(json.loads, done.stderr.splitlines())
    assert (notice["message"], notice["exception_class"]) == ("hidden", "ZeroDivisionError")
    assert "traceback" not in notice
    assert (given["message"], "traceback" in given) == ("hidden too", True)
    assert "+09:00 INFO s x: for people" in done.stdout


@pytest.mark.spec("004 REQ-0013", "004 ERR-PYOCO-0013")
@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("PYOCO_LOG_LEVEL", "LOUD", "the level is 'LOUD'"),
        ("PYOCO_LOG_FORMAT", "xml", "the format is 'xml'"),
        ("PYOCO_LOG_UTC", "maybe", "PYOCO_LOG_UTC is 'maybe'"),
        ("PYOCO_LOG_INCLUDE_TRACEBACK", "2", "PYOCO_LOG_INCLUDE_TRACEBACK is '2'"),
    ],
)
def test_a_wrong_variable_is_replaced_and_logged(variable: str, text: str, reason: str) -> None:
    program = CONFIGURE + f"import os\nos.environ[{variable!r}] = {text!r}\nconfigure_logging(service='s')\n"
    (notice,) = log_of(program)
    assert notice["err_id"] == "ERR-PYOCO-0013"
    assert notice["reason"].startswith(reason)


BROKEN = """
class Broken:
    def write(self, text): raise OSError("disk full")
    def flush(self): pass
"""


@pytest.mark.spec("004 REQ-0013", "004 ERR-PYOCO-0013")
def test_a_stream_that_fails_is_reported_once_and_lines_go_to_stderr() -> None:
    program = CONFIGURE + BROKEN + (
        "configure_logging(service='s', stream=Broken())\n"
        "logging.getLogger('x').info('one'); logging.getLogger('x').info('two')\n"
    )  # fmt: skip
    notice, *lines = log_of(program)
    assert (notice["err_id"], notice["exception_message"]) == ("ERR-PYOCO-0013", "disk full")
    assert [line["message"] for line in lines] == ["one", "two"]


@pytest.mark.parametrize(
    "breaking",
    [
        "sys.stderr.close()",
        "import os; os.close(2)",
        "sys.stderr = None; sys.__stderr__ = None",
        "sys.stderr = Broken()",
    ],
)
def test_a_log_that_cannot_be_written_does_not_stop_the_program(breaking: str) -> None:
    program = CONFIGURE + BROKEN + (
        "configure_logging(service='s')\n"
        f"{breaking}\n"
        "logging.getLogger('x').error('m', exc_info=ValueError())\n"
        "print('still here')\n"
        "sys.stdout.flush()\n"
        "import os; os._exit(0)\n"
    )  # fmt: skip
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "still here\n")


def test_a_reader_that_is_gone_does_not_stop_the_program() -> None:
    program = CONFIGURE + (
        "import os\n"
        "reading, writing = os.pipe()\n"
        "configure_logging(service='s', stream=os.fdopen(writing, 'w'))\n"
        "os.close(reading)\n"
        "logging.getLogger('x').info('m')\n"
        "print('still here')\n"
        "sys.stdout.flush()\n"
        "os._exit(0)\n"
    )
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "still here\n")
    notice, line = map(json.loads, done.stderr.splitlines())
    assert (notice["err_id"], notice["exception_class"]) == ("ERR-PYOCO-0013", "BrokenPipeError")
    assert line["message"] == "m"


def test_a_small_encoding_accepts_every_line() -> None:
    program = CONFIGURE + (
        "import io\n"
        "raw = io.BytesIO()\n"
        "configure_logging(service='s', stream=io.TextIOWrapper(raw, encoding='ascii'))\n"
        "logging.getLogger('x').info('失敗 \\U0001f600 \\udc80')\n"
        "print(raw.getvalue().decode('ascii'), end='')\n"
    )
    done = run(program)
    assert done.stderr == ""
    assert json.loads(done.stdout)["message"] == "失敗 \U0001f600 \\udc80"


SERVE = """
import asyncio, socket, urllib.request
import uvicorn

async def app(scope, receive, send):
    if scope["path"] == "/bad":
        raise RuntimeError("handler failed")
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})

def ask(path):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).close()
    except urllib.error.HTTPError as error:
        error.close()

async def main():
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await asyncio.to_thread(ask, "/runs?api_key=s3cret")
    await asyncio.to_thread(ask, "/bad")
    server.should_exit = True
    await serving

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
port = listening.getsockname()[1]
"""


def test_uvicorn_logs_through_ours() -> None:
    pytest.importorskip("uvicorn")
    taken_over = "import uvicorn\nuvicorn.Config(None)  # brings uvicorn's own handlers\n"
    program = CONFIGURE + taken_over + SERVE + "configure_logging(service=HTTP_SERVICE)\nasyncio.run(main())\n"
    lines = log_of(program)
    access = [line["message"] for line in lines if line["logger"] == "uvicorn.access"]
    assert len(access) == 2
    assert '"GET /runs?api_key=*** HTTP/1.1" 204' in access[0]
    (failure,) = [line for line in lines if "exception_class" in line]
    assert (failure["logger"], failure["exception_message"]) == ("uvicorn.error", "handler failed")
    assert failure["exception_at"].endswith(" app")
    assert not any("color_message" in line for line in lines)
