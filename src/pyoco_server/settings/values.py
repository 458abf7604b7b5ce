"""The types of values: how the text of a variable is read, and the words for what is allowed."""

import re
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, FilePath, SecretStr

from pyoco_server.flows.environment import is_protected
from pyoco_server.identifiers import HEADER_NAME, HOST, RESOURCE, SUBJECT_PREFIX, TAG, Rule
from pyoco_server.logs.setup import TRUTH, level_named

LONGEST_SEC: Final = 1_000_000_000
"""No time may be longer: 31 years are enough, and still fit into the nanoseconds NATS counts in."""

SHORTEST_KEY: Final = 32
"""Characters a key that signs must have."""


_CALLABLES: Final = re.compile(r"!?[\w*]+(\.[\w*]+)*(:[\w*]+)?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/?#@]+))(?::[0-9]{1,5})?", re.ASCII)
_EXPOSED: Final = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*", re.ASCII)
_SEED: Final = re.compile(r"SU[A-Z2-7]{56}", re.ASCII)


_T = TypeVar("_T")


class Allowed(msgspec.Struct, frozen=True):
    """What a variable may be set to, in words that follow 'must be'."""

    words: str


def _by(rule: Rule) -> AfterValidator:
    def check(text: str) -> str:
        if not rule.fits(text):
            raise ValueError(text)
        return text

    return AfterValidator(check)


def _read_as(read: Callable[[str], _T]) -> BeforeValidator:
    """Read text; leave anything else (a default, a value given in code) to pydantic."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _truth(text: str) -> bool:
    known = TRUTH.get(text.lower())
    if known is None:
        raise ValueError(text)
    return known


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def _callables(value: Any) -> Any:  # noqa: ANN401 (pydantic checks what is no text)
    if not isinstance(value, str):
        return value
    patterns = tuple(part.strip() for part in value.split(",") if part.strip())
    for pattern in patterns:
        if not _CALLABLES.fullmatch(pattern):
            raise ValueError(pattern)
    return patterns


def _exposed_names(value: Any) -> Any:  # noqa: ANN401 (pydantic checks what is no text)
    if not isinstance(value, str):
        return value
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    for name in names:
        if not _EXPOSED.fullmatch(name) or ("*" not in name and is_protected(name)):
            raise ValueError(name)
    return names


def _seed(secret: SecretStr | None) -> SecretStr | None:
    if secret and not _SEED.fullmatch(secret.get_secret_value()):
        raise ValueError("not a seed")
    return secret


def _result_key(secret: SecretStr | None) -> SecretStr | None:
    if secret and len(secret.get_secret_value()) not in {0, *range(SHORTEST_KEY, 1_025)}:
        raise ValueError("not a key")
    return secret


def _nats_urls(value: Any) -> Any:  # noqa: ANN401 (pydantic checks what is no text)
    return tuple(_nats_url(part.strip()) for part in value.split(",")) if isinstance(value, str) else value


def _nats_url(text: str) -> str:
    """One address; without a scheme it means ``nats://``."""
    url = text if "://" in text else f"nats://{text}"
    parts = urlsplit(url)
    reachable = parts.hostname and _host(parts.hostname) and parts.port != 0  # a wrong port raises here
    if parts.scheme not in {"nats", "tls"} or not reachable or re.search(r"\s", url):
        raise ValueError("not an address")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("more than an address")
    return url


def _host(text: str) -> str:
    """A name or an address; only an IPv6 address has colons."""
    if ":" in text:
        IPv6Address(text)
    elif not HOST.fits(text):
        raise ValueError(text)
    return text


def _parts(value: Any) -> Any:  # noqa: ANN401 (pydantic checks what is no text)
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def _origin(text: str) -> str:
    """One origin as browsers send it: in lower case, without a path."""
    found = _ORIGIN.fullmatch(text.lower().removesuffix("/"))
    if found is None:
        raise ValueError("not an origin")
    _host(found[1] or found[2])
    return found[0]


Truth = Annotated[bool, _read_as(_truth), Allowed("one of 0, 1, true, false, yes, no, on, off")]

_MORE_THAN_0 = Field(gt=0, le=LONGEST_SEC, allow_inf_nan=False)
_0_OR_MORE = Field(ge=0, le=LONGEST_SEC, allow_inf_nan=False)
Seconds = Annotated[float, _MORE_THAN_0, Allowed(f"a number of seconds greater than 0 (at most {LONGEST_SEC})")]
SecondsOrZero = Annotated[float, _0_OR_MORE, Allowed(f"a number of seconds from 0 to {LONGEST_SEC}")]
SecondsOrNoLimit = Annotated[
    float, _0_OR_MORE, Allowed(f"a number of seconds greater than 0 (at most {LONGEST_SEC}), or 0 for no limit")
]
RateOrNoLimit = Annotated[
    float, Field(ge=0, le=1_000_000, allow_inf_nan=False), Allowed("a number of requests a second, or 0 for no limit")
]

_Whole = Annotated[int, _read_as(_whole_number)]
Count = Annotated[_Whole, Field(ge=1, le=2**31 - 1), Allowed("a whole number, 1 or more")]
CountOrNoLimit = Annotated[_Whole, Field(ge=0, le=2**63 - 1), Allowed("a whole number, or 0 for no limit")]
Bytes = Annotated[_Whole, Field(ge=1, le=2**63 - 1), Allowed("a whole number of bytes, 1 or more")]
BytesOrNoLimit = Annotated[_Whole, Field(ge=0, le=2**63 - 1), Allowed("a whole number of bytes, or 0 for no limit")]
Port = Annotated[_Whole, Field(ge=0, le=65535), Allowed("a port from 1 to 65535, or 0 to let the system choose")]

Tag = Annotated[str, _by(TAG), Allowed(f"a tag: {TAG.words}")]
StreamName = Annotated[str, _by(RESOURCE), Allowed(f"the name of a stream: {RESOURCE.words}")]
BucketName = Annotated[str, _by(RESOURCE), Allowed(f"the name of a bucket: {RESOURCE.words}")]
SubjectPrefix = Annotated[
    str,
    _by(SUBJECT_PREFIX),
    Allowed(f"the beginning of a subject: {SUBJECT_PREFIX.words}"),
]

HeaderName = Annotated[str, _by(HEADER_NAME), Allowed(HEADER_NAME.words)]
Host = Annotated[str, AfterValidator(_host), Allowed("a host name or address, without a port")]
Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_host)], ...],
    BeforeValidator(_parts),
    Allowed("host names or addresses without ports, separated by commas"),
]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...],
    BeforeValidator(_parts),
    Allowed("origins such as https://pyoco.example.org, separated by commas"),
]
Directory = Annotated[Path, Allowed("the path of a directory")]
AnyFile = Annotated[Path, Allowed("the path of a file")]
File = Annotated[FilePath | None, Allowed("the path of a file that exists")]
Secret = Annotated[SecretStr | None, Allowed("a text")]
NkeySeed = Annotated[
    SecretStr | None,
    AfterValidator(_seed),
    Allowed("the seed of a user's nkey: 58 characters that begin with SU"),
]
ResultKey = Annotated[
    SecretStr | None,
    AfterValidator(_result_key),
    Allowed(f"a secret text of {SHORTEST_KEY} to 1024 characters, such as 'openssl rand -hex 32' prints"),
]
NatsUrls = Annotated[
    tuple[str, ...],
    BeforeValidator(_nats_urls),
    Field(min_length=1),
    Allowed("nats://host:port or tls://host:port, or several of them separated by commas"),
]

Callables = Annotated[
    tuple[str, ...],
    BeforeValidator(_callables),
    Allowed("patterns separated by commas: module, module:function or *, each with '!' in front to deny it"),
]

ExposedNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_exposed_names),
    Allowed(
        "names of variables separated by commas, '*' is any text; none of PYOCO_* and none that looks like a secret"
    ),
]

LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    _read_as(level_named),
    Allowed("one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
]
LogFormat = Annotated[Literal["json", "text"], _read_as(str.lower), Allowed("json or text")]
AuthMode = Annotated[Literal["none", "api_key"], _read_as(str.lower), Allowed("none or api_key")]
LanguageOrAuto = Annotated[Literal["auto", "ja", "en"], _read_as(str.lower), Allowed("one of auto, ja, en")]
Durability = Annotated[Literal["sync", "fast"], _read_as(str.lower), Allowed("sync or fast")]
