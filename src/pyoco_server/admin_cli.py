"""``pyoco-server-admin``, the command of 0.5.1 for API keys: it runs ``pyoco-server keys`` and answers in JSON.

Programs that read its answers find the names of 0.5.1 in them: ``key_id`` beside ``api_key_id``. New programs should
call ``pyoco-server keys``, which can do more.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from pyoco_server.cli.server import main as server
from pyoco_server.cli.shared.output import note
from pyoco_server.cli.shared.parsing import Parser, add_version, run_command_line

_EXAMPLE: Final = "pyoco-server-admin api-key create --tenant acme"
_IS_NOW: Final = "note: pyoco-server-admin api-key is kept for programs written for 0.5.1; use 'pyoco-server keys'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 1 with the reason on stderr."""
    return run_command_line(_parser, argv)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="pyoco-server-admin",
        description="Manage API keys, as in 0.5.1. It is the same as 'pyoco-server keys', with answers in JSON.",
        allow_abbrev=False,
    )
    add_version(parser)
    parser.add_argument("--nats-url", metavar="URL", help="where NATS is (PYOCO_NATS_URL)")
    parser.set_defaults(example=_EXAMPLE)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    api_key = commands.add_parser("api-key", help="API keys: create, list, revoke", allow_abbrev=False)
    actions = api_key.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = actions.add_parser("create", help="issue a key; it is shown once", allow_abbrev=False)
    create.add_argument("--tenant", metavar="T", required=True, help="whose runs the key is for")
    create.set_defaults(run=lambda given: _keys(given, "create", "--tenant", given.tenant))
    shown = actions.add_parser("list", help="show all keys, but not their secrets", allow_abbrev=False)
    shown.set_defaults(run=lambda given: _keys(given, "list"))
    revoke = actions.add_parser("revoke", help="withdraw a key for good", allow_abbrev=False)
    revoke.add_argument("--key-id", metavar="ID", required=True, help="which key")
    revoke.set_defaults(run=lambda given: _keys(given, "revoke", given.key_id))
    return parser


def _keys(given: argparse.Namespace, *command: str) -> int:
    """Run ``pyoco-server keys`` with these arguments."""
    note(_IS_NOW)
    where = [] if given.nats_url is None else [f"--nats-url={given.nats_url}"]
    return server.main(["keys", command[0], "--json", "--with-key-id", *where, *command[1:]])


if __name__ == "__main__":
    sys.exit(main())
