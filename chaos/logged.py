"""What gateways and workers wrote about errors."""

import collections
import contextlib
import json
from pathlib import Path


def errors_in(home: Path) -> dict[str, int]:
    """How often which error was logged, by its id and what was being done; and what was not logged but printed."""
    found: collections.Counter[str] = collections.Counter()
    for log in home.glob("*.log"):
        for line in log.read_text().splitlines():
            if line.startswith("Traceback"):
                found["a traceback that was printed, not logged"] += 1
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("level") in {"ERROR", "CRITICAL"}:
                    what = f"{entry.get('err_id') or 'no id'} {entry.get('action') or entry.get('message')}"
                    kind = str(entry.get("exception_class") or "").rpartition(".")[2]
                    found[f"{what} ({kind})" if kind else what] += 1
    return dict(found.most_common())
