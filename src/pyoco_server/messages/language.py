"""Choose between the two languages of the texts."""

import locale
import os
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, Literal

_LOCALE_VARIABLES: Final = ("LC_ALL", "LC_MESSAGES", "LANG")

_QUALITY: Final = re.compile(r"q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE | re.ASCII)
_RANGE: Final = re.compile(r"\*|[a-z]{1,8}(?:-[a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)


class Language(StrEnum):
    """A language the catalogue is written in."""

    JA = "ja"
    EN = "en"


_OURS: Final = frozenset(language.value for language in Language)


def language_of_locale(environment: Mapping[str, str] | None = None) -> Language:
    """Return the language of this process's locale; English for all others."""
    given = os.environ if environment is None else environment
    named = next((given[name] for name in _LOCALE_VARIABLES if given.get(name)), None)
    if named is None and environment is None:
        named = locale.getlocale()[0]
    return Language.JA if (named or "").lower().startswith("ja") else Language.EN


def server_language(wanted: Literal["auto", "ja", "en"], environment: Mapping[str, str] | None = None) -> Language:
    """Return the configured language; for ``auto`` that of the server's locale."""
    return language_of_locale(environment) if wanted == "auto" else Language(wanted)


def negotiate(accept_language: str | None, *, default: Language) -> Language:
    """Return the best of our languages for an ``Accept-Language`` header (RFC 9110 §12.5.4).

    The highest quality wins; of equals, the one named first. Regions do not matter: ``en-GB`` is served in ``en``.
    What cannot be understood is skipped. A header that names neither language, or says ``*``, gets the default.
    """
    wanted: dict[Language, float] = {}
    anything = 0.0
    for tag, quality in _ranges(accept_language or ""):
        if tag == "*":
            anything = max(anything, quality)
        elif tag in _OURS:
            language = Language(tag)
            wanted[language] = max(wanted.get(language, 0.0), quality)
    if anything:
        unnamed = [default, *Language]
        wanted |= {language: anything for language in unnamed if language not in wanted}
    best = max(wanted.values(), default=0.0)
    return next((language for language, quality in wanted.items() if quality == best and quality > 0), default)


def _ranges(header: str) -> Iterator[tuple[str, float]]:
    """Return the primary tags of the header with their qualities, in its order."""
    for part in header.split(","):
        tag, *parameters = (piece.strip() for piece in part.split(";"))
        if not _RANGE.fullmatch(tag):
            continue
        quality = _QUALITY.fullmatch(parameters[0]) if parameters else None
        if parameters and (quality is None or len(parameters) > 1):
            continue
        yield tag.partition("-")[0].lower(), float(quality[1]) if quality else 1.0
