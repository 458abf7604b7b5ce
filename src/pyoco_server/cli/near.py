"""What somebody may have meant who typed something that is nearly right."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FLOW_FILES: Final = frozenset({".py", ".yaml", ".yml"})


def meant(typed: str, there: Iterable[str]) -> str:
    """The nearest of what is there, as a question; empty if nothing is near."""
    by_letters = {name.lower(): name for name in there}
    near = difflib.get_close_matches(typed.lower(), by_letters, n=1)
    return f"; did you mean '{by_letters[near[0]]}'?" if near else ""


def meant_file(typed: str) -> str:
    """The nearest file with flows in the same folder, as a question; empty if there is none."""
    path = Path(typed)
    try:
        there = sorted(file.name for file in path.parent.iterdir() if file.suffix.lower() in _FLOW_FILES)
    except (OSError, ValueError):  # ValueError: a name no folder can have
        return ""
    same = [name for name in there if Path(name).stem == path.name]
    near = f"; did you mean '{same[0]}'?" if same else meant(path.name, there)
    return near.replace("'", f"'{path.parent}/", 1) if near and str(path.parent) != "." else near
