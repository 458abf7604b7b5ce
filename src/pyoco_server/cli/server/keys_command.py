"""``pyoco-server keys``: creates, lists, revokes and rotates API keys, directly in NATS."""

import argparse
import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.app.api_keys.service import DEFAULT_SCOPES, IssuedKey, KeyService
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.cli.shared.argument_types import seconds
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.flag_settings import load_with_flags
from pyoco_server.cli.shared.output import Column, joined, moment, note, print_json, print_table
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.settings import Settings

_DESCRIPTION = """\
Create, list, revoke and rotate the API keys that the gateway requires with PYOCO_HTTP_AUTH_MODE=api_key.

A key is accepted on every route unless --scope limits it: runs (submit, read, cancel, resume), operate (workers,
metrics, dead letters, archive), wheels (upload code for the workers), yaml (submit a flow.yaml, which names what the
workers call). Give each program the scopes it needs.

The commands connect to NATS (PYOCO_NATS_URL, --nats-url) and need the gateway's PYOCO_AUTH_PEPPER, if it has one.
Changes apply to every gateway within a second."""
_EXAMPLE: Final = "pyoco-server keys create --tenant acme --scope runs --name ci --expires 90d"
_SEAL_EXAMPLE: Final = "PYOCO_AUTH_PEPPER=… pyoco-server keys seal"
_WHERE: Final = (
    "--nats-url or PYOCO_NATS_URL is the address of NATS; 'pyoco-server dev' shows the one of its own when it starts"
)
_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_COLUMNS: Final = (
    Column("KEY ID", lambda key: key["api_key_id"]),
    Column("TENANT", lambda key: key["tenant_id"] or "(all)"),
    Column("SCOPES", lambda key: joined(key["scopes"])),
    Column("NAME", lambda key: key["name"]),
    Column("STATE", lambda key: key["state"]),
    Column("CREATED", lambda key: moment(key["created_at"])),
    Column("EXPIRES", lambda key: moment(key["expires_at"])),
)
_ISSUED_BY: Final = Column("ISSUED BY", lambda key: key["issued_by"])

Act = Callable[[argparse.Namespace, KeyService], Awaitable[None]]


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the arguments."""
    parser = subcommands.add_parser(
        "keys",
        help="API keys: create, list, revoke, rotate",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = _action(actions, "create", "issue a key; it is shown once", _create)
    whose = create.add_mutually_exclusive_group(required=True)
    whose.add_argument("--tenant", metavar="T", help="the tenant whose runs the key is for")
    whose.add_argument("--all-tenants", action="store_true", help="for operators: the key sees the runs of all tenants")
    create.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        choices=[scope.value for scope in KeyScope],
        help="limit the key to runs, operate, wheels or yaml; may be repeated (all of them)",
    )
    create.add_argument("--name", metavar="TEXT", help="what the key is for")
    create.add_argument("--expires", metavar="WHEN", type=_expiry, help="30d, 12h, or a time such as 2027-01-31")
    _action(actions, "list", "show all keys, but not their secrets", _list)
    revoke = _action(actions, "revoke", "revoke a key for ever", _revoke)
    revoke.add_argument("api_key_id", metavar="API_KEY_ID")
    rotate = _action(actions, "rotate", "give a key a new secret", _rotate)
    rotate.add_argument("api_key_id", metavar="API_KEY_ID")
    seal = _action(actions, "seal", "accept keys of an earlier version whose records have no seal", _seal)
    seal.add_argument(
        "api_key_id", metavar="API_KEY_ID", nargs="*", help="seal these as they are (all, if none was sealed before)"
    )
    rotate.add_argument(
        "--keep-old-for", metavar="SEC", type=seconds, default=0.0, help="how long the old secret stays valid (0)"
    )


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    act: Act,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.add_argument("--nats-url", metavar="URL", help="the address of NATS (PYOCO_NATS_URL)")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    # For pyoco-server-admin, whose answers have the name of 0.5.1 too.
    parser.add_argument("--with-key-id", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=lambda arguments: _run(arguments, act), example=_EXAMPLE)
    return parser


def _run(arguments: argparse.Namespace, act: Act) -> int:
    loaded = load_with_flags(os.environ, arguments, {"nats_url": "PYOCO_NATS_URL"}, example=_EXAMPLE)
    asyncio.run(_with_service(loaded.settings, arguments, act))
    return DONE


async def _with_service(settings: Settings, arguments: argparse.Namespace, act: Act) -> None:
    from pyoco_server.bootstrap.gateway import open_key_service  # noqa: PLC0415 it loads slowly; help and usage errors do not need it

    try:
        async with open_key_service(settings) as service:
            await act(arguments, service)
    except UnavailableError as error:
        error.add_note(_WHERE)
        raise


async def _create(arguments: argparse.Namespace, service: KeyService) -> None:
    scopes = {KeyScope(name) for name in arguments.scope or DEFAULT_SCOPES}
    expires_at = None if arguments.expires is None else arguments.expires()
    await _warn_of_another_pepper(service)
    issued = await service.create(arguments.tenant, scopes=scopes, name=arguments.name, expires_at=expires_at)
    _print_issued(issued, service, arguments)


async def _list(arguments: argparse.Namespace, service: KeyService) -> None:
    keys = [_shown(key, service, arguments) for key in await service.all()]
    if arguments.json:
        print_json(keys)
    else:
        of_051 = [_ISSUED_BY] if any(key["issued_by"] for key in keys) else []
        print_table([*_COLUMNS, *of_051], keys, empty="there are no keys; pyoco-server keys create makes one")
        for key in keys:
            if key["defect"] is not None:
                note(f"{key['api_key_id']} must be issued again: {key['defect']}")
            elif key["problem"] is not None:
                note(f"{key['api_key_id']} is refused: {key['problem']}")


async def _revoke(arguments: argparse.Namespace, service: KeyService) -> None:
    revoked = _shown(await service.revoke(arguments.api_key_id), service, arguments)
    if arguments.json:
        print_json(revoked)
    else:
        note(f"{revoked['api_key_id']} is revoked")


async def _rotate(arguments: argparse.Namespace, service: KeyService) -> None:
    _print_issued(await service.rotate(arguments.api_key_id, keep_old_sec=arguments.keep_old_for), service, arguments)


async def _seal(arguments: argparse.Namespace, service: KeyService) -> None:
    """Seal the named keys, for which the operator vouches; without names, the keys of an earlier version, once."""
    if not service.has_pepper:
        raise UsageError("keys seal: set PYOCO_AUTH_PEPPER to that of the gateway", example=_SEAL_EXAMPLE)
    named: list[str] = arguments.api_key_id
    sealed = [await service.seal(key_id) for key_id in named] if named else await service.seal_once()
    shown = [_shown(key, service, arguments) for key in sealed]
    if arguments.json:
        print_json(shown)
    else:
        print_table([*_COLUMNS], shown, empty="no key was sealed: all that count have a seal")


def _print_issued(issued: IssuedKey, service: KeyService, arguments: argparse.Namespace) -> None:
    """Print the key on stdout, where a program can read it, and all else on stderr."""
    if arguments.json:
        print_json({"api_key": issued.text, **_shown(issued.stored, service, arguments)})
        return
    print(issued.text)  # noqa: T201 what the command is for
    note(f"{issued.stored.api_key_id}: keep the key now, it cannot be shown again")


def _shown(key: StoredKey, service: KeyService, arguments: argparse.Namespace) -> dict[str, Any]:
    also = {"key_id": key.api_key_id} if arguments.with_key_id else {}
    return also | {
        "api_key_id": key.api_key_id,
        "tenant_id": key.tenant_id,
        "scopes": list(key.scopes),
        "name": key.name,
        "state": service.state_of(key),
        "issued_by": "0.5.1" if key.slow is not None else None,
        "defect": key.defect,
        "problem": service.problem_of(key),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "rotated_at": key.rotated_at,
    }


async def _warn_of_another_pepper(service: KeyService) -> None:
    if any(service.state_of(key) == "other pepper" for key in await service.all()):
        note(
            "warning: there are keys made with another PYOCO_AUTH_PEPPER; the gateway knows only keys made with its own"
        )


def _expiry(text: str) -> Callable[[], float]:
    """Parse when the key expires: after a length of time from its creation, or at a time."""
    length = _LENGTH.fullmatch(text.strip())
    if length is not None:
        return lambda: SystemClock().now().timestamp() + float(length[1]) * _UNITS[length[2]]
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a length such as 30d nor a time such as 2027-01-31"
        ) from error
    at = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    return lambda: at
