"""Finds what pyoco-server 0.5.1 left on a NATS server and an operator must act on."""

from collections.abc import Sequence
from typing import NamedTuple

from pyoco_server.adapters.jetstream.primitives.adopted_settings import Difference, adopt, differences
from pyoco_server.adapters.jetstream.stores.keys import JetStreamKeyStore
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.bootstrap.platform import names_of, open_platform
from pyoco_server.settings import Settings


class Migration(NamedTuple):
    """Settings that should be changed, or were, and the API keys of 0.5.1 that count or must be issued again."""

    settings: Sequence[Difference]
    keys: Sequence[StoredKey]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return all(one.is_changed for one in self.settings) and all(key.defect is None for key in self.keys)


async def migrate(settings: Settings, *, change: bool) -> Migration:
    """Look at what is there, and ``change`` the settings that should be changed; nothing that is stored is touched.

    UnavailableError if NATS does not answer. A key that was revoked is left out.
    """
    async with open_platform(settings, name="pyoco-server migrate") as platform:
        names = names_of(settings)
        found = await (adopt if change else differences)(platform.connection, names)
        records = await JetStreamKeyStore(platform.connection, names).read()
        keys = [key for key in records.keys if key.slow is not None and key.revoked_at is None]
        return Migration(found, sorted(keys, key=lambda key: key.created_at))
