"""Compares the settings of streams and buckets that another version created with ours, and changes them.

Only settings that lose data or cost speed are compared. Nothing that is stored changes, and 0.5.1 works with the
changed settings, too. Limits and names are up to the operator and stay.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import msgspec
from nats.js.api import StreamConfig

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream
from pyoco_server.adapters.jetstream.primitives.provisioning import change_stream, wanted_streams
from pyoco_server.adapters.jetstream.transport.error_translation import translated


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of a stream that should be another one."""

    resource: str
    setting: str
    now: str
    wanted: str
    why: str
    is_changed: bool = False


class _SettingRule(msgspec.Struct, frozen=True):
    setting: str
    why: str
    differs: Callable[[StreamConfig, StreamConfig], bool]


def _forgets(found: StreamConfig, wanted: StreamConfig) -> bool:
    return bool(found.max_age) and not wanted.max_age


_RULES: Final = (
    _SettingRule(
        "allow_direct",
        "reading without it is slow",
        lambda found, want: bool(want.allow_direct) and not found.allow_direct,
    ),
    _SettingRule(
        "republish",
        "without it gateways see changes later, and not what was overwritten in between",
        lambda found, want: want.republish is not None and found.republish is None,
    ),
)
_WORKERS: Final = _SettingRule(
    "max_age", "a worker that stopped is forgotten, and DISCONNECTED is never shown", _forgets
)


async def differences(connection: Connection, names: Names) -> list[Difference]:
    """Return what should be changed; UnavailableError if NATS does not answer."""
    return [difference async for difference in _each(connection, names, change=False)]


async def adopt(connection: Connection, names: Names) -> list[Difference]:
    """Change what should be changed and return it; ResourceMismatchError if the server refuses."""
    return [difference async for difference in _each(connection, names, change=True)]


async def _each(connection: Connection, names: Names, *, change: bool) -> AsyncIterator[Difference]:
    for wanted in wanted_streams(names):
        name = str(wanted.name)
        with translated():
            found = (await connection.js.stream_info(name)).config
        rules = list(_broken(found, wanted, names))
        differences_found = [_difference(rule, found, wanted, is_changed=change) for rule in rules]
        if rules and change:
            for rule in rules:
                setattr(found, rule.setting, getattr(wanted, rule.setting))
            await change_stream(connection, found)
        for difference in differences_found:
            yield difference


def _broken(found: StreamConfig, wanted: StreamConfig, names: Names) -> Iterator[_SettingRule]:
    rules = (*_RULES, _WORKERS) if wanted.name == kv_stream(names.workers_bucket) else _RULES
    return (rule for rule in rules if rule.differs(found, wanted))


def _difference(rule: _SettingRule, found: StreamConfig, wanted: StreamConfig, *, is_changed: bool) -> Difference:
    now, want = (_shown(rule.setting, getattr(config, rule.setting)) for config in (found, wanted))
    return Difference(
        resource=str(wanted.name), setting=rule.setting, now=now, wanted=want, why=rule.why, is_changed=is_changed
    )


def _shown(setting: str, value: object) -> str:
    if setting == "max_age":
        return f"{value:g} s" if isinstance(value, int | float) and value else "no limit"
    return "off" if not value else "on"
