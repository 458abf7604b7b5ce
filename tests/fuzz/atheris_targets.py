"""The same decoders under a coverage-guided fuzzer: ``python -m tests.fuzz.atheris_targets TARGET [OPTIONS]``.

The options are libFuzzer's. Needs the package atheris, which is not among the dependencies: there are not wheels of it
for every Python and system. A corpus to begin with is written by ``--corpus DIRECTORY``::

    python -m tests.fuzz.atheris_targets event --corpus corpus/event
    python -m tests.fuzz.atheris_targets event corpus/event -max_total_time=600
"""

import contextlib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str]) -> int:
    """Fuzz one decoder until something breaks; 2 if it cannot be done."""
    if argv[2:3] == ["--corpus"]:
        return _write_corpus(argv[1], Path(*argv[3:4]))
    try:
        atheris: Any = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.stderr.write("atheris is not installed: pip install atheris\n")
        return 2
    with atheris.instrument_imports(include=["pyoco_server"]):  # so nothing of it may be imported before
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
    if len(argv) < 2 or argv[1] not in targets:
        sys.stderr.write(f"usage: python -m tests.fuzz.atheris_targets {{{','.join(targets)}}} [OPTIONS]\n")
        return 2
    target = targets[argv[1]]

    def one_input(data: bytes) -> None:
        with contextlib.suppress(*target.errors):
            target.read(data)

    atheris.Setup([argv[0], *argv[2:]], one_input)
    atheris.Fuzz()
    return 0


def _write_corpus(name: str, folder: Path) -> int:
    originals = importlib.import_module("tests.fuzz.test_decoders").ORIGINALS
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(originals[name]):
        (folder / f"{number:04}").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
