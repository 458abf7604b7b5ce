"""API keys in a KV bucket: one record for each key, under its public id; records of 0.5.1 stay as they are."""

import contextlib
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.kv import Bucket, entry_of
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.stores import keys_051
from pyoco_server.adapters.jetstream.transport.error_translation import ChangedError, MissingError, translated
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import KeyRecords, StoredKey, with_later_scopes
from pyoco_server.identifiers import TOKEN

_log = logging.getLogger(__name__)

_MOST_TRIES: Final = 100
_LOOKS: Final = 3
_MARK: Final = "_closed_"
"""Begins the keys of marks; no id of an API key begins so."""

_decoder = msgspec.json.Decoder(StoredKey)


class JetStreamKeyStore:
    """API keys in their bucket."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self.name = names.auth_bucket
        self._connection = connection
        self._stream = kv_stream(names.auth_bucket)
        self._keys = kv_subject(names.auth_bucket, "")
        self._bucket = Bucket(connection, names.auth_bucket)
        self._reader = StreamReader(connection, self._stream)
        self._leader = StreamReader(connection, self._stream, leader=True)

    async def add(self, key: StoredKey) -> bool:
        """Store a new key; False if its id is or was in use."""
        token = TOKEN.checked(key.api_key_id, "api_key_id")
        try:
            await self._bucket.put(token, msgspec.json.encode(key), after=0)
        except ChangedError:
            return False
        return True

    async def update(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey | None:
        """Store the changed key; call ``change`` again after each conflict with another writer."""
        token = _token(api_key_id)
        for _ in range(_MOST_TRIES):
            stored = await self._bucket.look(token, newest=True)
            found = _key(token, stored.data)
            if found is None:
                return None
            changed = change(found)
            if changed == found:
                return found
            try:
                await self._bucket.put(token, _encoded(changed), after=stored.revision)
            except ChangedError:
                continue
            return changed
        raise UnavailableError(f"the key '{api_key_id}' changed {_MOST_TRIES} times while it was to be written")

    async def read(self, known: KeyRecords | None = None) -> KeyRecords:
        """Return all keys. The leader knows whether any changed; any replica that is up to date sends them."""
        version = await self._version()
        if known is not None and known.version == version:
            return known
        newest = await self._leader.last(f"{self._keys}>")
        for _ in range(_LOOKS):
            found, marks, reached = await self._read_all()
            if newest is None or reached >= newest.sequence:
                return KeyRecords(version, found, marks)
        raise UnavailableError("the API keys could not be read up to the newest; a replica lags behind")

    async def put_mark(self, mark: str) -> None:
        """Store a mark that closes the bucket to records without a seal."""
        token = f"{_MARK}{mark[:16]}"
        stored = await self._bucket.look(token, newest=True)
        with contextlib.suppress(ChangedError):  # another process has just written it
            await self._bucket.put(token, mark.encode(), after=stored.revision)

    async def _read_all(self) -> tuple[list[StoredKey], frozenset[str], int]:
        """Return the keys, the marks and the newest sequence; a key that changes meanwhile is read again at the end."""
        found, reached = dict[str, bytes | None](), 0
        while True:
            page = await self._reader.page(f"{self._keys}>", start=reached + 1)
            for message in page.messages:
                found[message.subject.removeprefix(self._keys)] = entry_of(message).data
                reached = message.sequence
            if not page.messages or page.left == 0:
                keys = [_key(token, data) for token, data in found.items() if not token.startswith(_MARK)]
                marks = [data for token, data in found.items() if data is not None and token.startswith(_MARK)]
                shown = frozenset(data.decode(errors="replace") for data in marks)
                return [key for key in keys if key is not None], shown, reached

    async def _version(self) -> str:
        """Return a text that differs after every change, also if the bucket was recreated or messages were removed."""
        try:
            with translated():
                info = await self._connection.js.stream_info(self._stream)
        except MissingError as error:
            raise UnavailableError(f"there is no bucket {self._stream}") from error
        return f"{info.created} {info.state.last_seq} {info.state.messages}"


def _token(api_key_id: str) -> str:
    """Return the key of the record."""
    return keys_051.record_key(api_key_id) or TOKEN.checked(api_key_id, "api_key_id")


def _encoded(key: StoredKey) -> bytes:
    return msgspec.json.encode(key) if key.slow is None else keys_051.encoded(key)


def _key(token: str, data: bytes | None) -> StoredKey | None:
    """Return the API key in a record; None if it is unreadable, or belongs under another id: both admit no request."""
    if data is None:
        return None
    try:
        is_051 = token.startswith(keys_051.PREFIX)
        key = keys_051.decoded(data) if is_051 else with_later_scopes(_decoder.decode(data))
    except msgspec.DecodeError:
        _log.warning("a stored API key cannot be read", extra={"action": "api_key_unreadable", "api_key_id": token})
        return None
    return key if (keys_051.record_key(key.api_key_id) or key.api_key_id) == token else None
