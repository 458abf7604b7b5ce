"""API keys in memory."""

from collections.abc import Callable

from pyoco_server.app.ports.keys import KeyRecords, StoredKey


class MemoryKeyStore:
    """Keys by id; the version counts all writes."""

    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {}
        self._writes = 0

    async def add(self, key: StoredKey) -> bool:
        """Keep a new key."""
        if key.api_key_id in self._keys:
            return False
        self._put(key)
        return True

    async def update(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey | None:
        """Store what ``change`` makes of a key."""
        found = self._keys.get(api_key_id)
        if found is None:
            return None
        changed = change(found)
        if changed != found:
            self._put(changed)
        return changed

    async def read(self, known: KeyRecords | None = None) -> KeyRecords:
        """All keys."""
        version = str(self._writes)
        if known is not None and known.version == version:
            return known
        return KeyRecords(version, [*self._keys.values()])

    def _put(self, key: StoredKey) -> None:
        self._keys[key.api_key_id] = key
        self._writes += 1
