"""Programs of the system that are run and waited for."""

import shutil
import subprocess

from chaos.errors import NotPossibleError


def run(*words: str) -> str:
    """Run a program and return what it printed; NotPossibleError if it is not there or fails."""
    program = shutil.which(words[0])
    if program is None:
        raise NotPossibleError(f"there is no program '{words[0]}'")
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)  # noqa: S603 words of ours
    if done.returncode != 0:
        raise NotPossibleError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
