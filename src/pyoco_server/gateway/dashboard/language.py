"""In which language the dashboard opens; whoever looks at it may change that in the page."""

import locale
import os
from collections.abc import Mapping
from typing import Literal

from pyoco_server.messages import Language

_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def opening_language(wanted: Literal["auto", "ja", "en"], environment: Mapping[str, str] | None = None) -> Language:
    """The language that was set; with ``auto`` that of the server's locale, and English where it is neither of ours."""
    if wanted != "auto":
        return Language(wanted)
    given = os.environ if environment is None else environment
    named = next((given[name] for name in _VARIABLES if given.get(name)), None)
    if named is None and environment is None:
        named = locale.getlocale()[0]
    return Language.JA if (named or "").lower().startswith("ja") else Language.EN
