"""``pyoco-server migrate``: finds what 0.5.1 left on a NATS server that has to be changed."""

import argparse
import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from pyoco_server.app.ports import UnavailableError
from pyoco_server.cli.shared.flag_settings import load_with_flags
from pyoco_server.cli.shared.output import Column, add_output_option, note, print_json, print_table, wants_json
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.settings import Settings

if TYPE_CHECKING:
    from pyoco_server.bootstrap.platform import Migration

_DESCRIPTION = """\
Check the streams and buckets that pyoco-server 0.5.1 created, and at the API keys it issued. The command lists the
settings that should be changed and the keys that must be issued again; --apply changes the settings. Nothing that is
stored is touched, and 0.5.1 works with the changed settings as well. What is missing is created, as at every start."""
_EXAMPLE: Final = "pyoco-server migrate --apply --nats-url nats://127.0.0.1:4222"
_SETTINGS: Final = (
    Column("STREAM", lambda one: one["resource"]),
    Column("SETTING", lambda one: one["setting"]),
    Column("NOW", lambda one: one["now"]),
    Column("WANTED", lambda one: one["wanted"]),
    Column("CHANGED", lambda one: "yes" if one["changed"] else "no"),
    Column("WHY", lambda one: one["why"], is_prose=True),
)
_KEYS: Final = (
    Column("KEY ID", lambda key: key["api_key_id"]),
    Column("TENANT", lambda key: key["tenant_id"]),
    Column("STATE", lambda key: key["state"]),
    Column("WHY", lambda key: key["defect"], is_prose=True),
)


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the arguments."""
    parser = subcommands.add_parser(
        "migrate",
        help="check what 0.5.1 left on a NATS server",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--apply", action="store_true", help="change the settings that should be changed")
    parser.add_argument("--nats-url", metavar="URL", help="the address of NATS (PYOCO_NATS_URL)")
    add_output_option(parser)
    parser.set_defaults(run=run, example=_EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Check, change with ``--apply``, and print the result."""
    loaded = load_with_flags(os.environ, arguments, {"nats_url": "PYOCO_NATS_URL"}, example=_EXAMPLE)
    found = asyncio.run(_migrate(loaded.settings, change=arguments.apply))
    settings, keys = _settings(found), _keys(found)
    if wants_json(arguments):
        print_json({"settings": settings, "keys": keys, "done": found.is_done})
        return DONE
    print_table(_SETTINGS, settings, empty="no setting has to be changed")
    print_table(_KEYS, keys, empty="there are no API keys of 0.5.1")
    if settings and not arguments.apply:
        note("'pyoco-server migrate --apply' changes these settings")
    if any(key["defect"] for key in keys):
        note("issue the keys in state 'reissue' again: pyoco-server keys create")
    return DONE


def _settings(found: "Migration") -> list[dict[str, Any]]:
    return [
        {
            "resource": one.resource,
            "setting": one.setting,
            "now": one.now,
            "wanted": one.wanted,
            "changed": one.is_changed,
            "why": one.why,
        }
        for one in found.settings
    ]


def _keys(found: "Migration") -> list[dict[str, Any]]:
    return [
        {
            "api_key_id": key.api_key_id,
            "tenant_id": key.tenant_id,
            "state": "active" if key.defect is None else "reissue",
            "defect": key.defect,
        }
        for key in found.keys
    ]


async def _migrate(settings: Settings, *, change: bool) -> "Migration":
    from pyoco_server.bootstrap.platform import migrate  # noqa: PLC0415 it loads slowly; help and usage errors do not need it

    try:
        return await migrate(settings, change=change)
    except UnavailableError as error:
        error.add_note("--nats-url or PYOCO_NATS_URL is the address of NATS")
        raise
