"""Read settings from the environment and a ``.env`` file, and report all mistakes at once, by the variable's name."""

import difflib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import msgspec
from dotenv.parser import parse_stream
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from pyoco_server.errors import InvalidInputError
from pyoco_server.settings.model import Settings, doubts
from pyoco_server.settings.section import Section, var_of
from pyoco_server.settings.values import Allowed

PREFIX: Final = "PYOCO_"

OF_CLIENTS: Final = frozenset({"PYOCO_SERVER_URL", "PYOCO_API_KEY"})
"""Not settings of a server or a worker, but common where people use the command lines."""

OF_PYOCO: Final = frozenset(
    {
        "PYOCO_CUTE",
        "PYOCO_DISCOVERY_MODULES",
        "PYOCO_MAX_LOG_BYTES",
        "PYOCO_MAX_RUN_HISTORY",
        "PYOCO_RUN_ARCHIVE_DIR",
        "PYOCO_WEBHOOK_RETRIES",
        "PYOCO_WEBHOOK_SECRET",
        "PYOCO_WEBHOOK_TIMEOUT",
        "PYOCO_WEBHOOK_URL",
    }
)
"""Variables with our prefix that the pyoco package reads itself."""

LONGEST_SHOWN: Final = 100
"""How much of a wrong value is shown, in characters."""

_LOGIN: Final = re.compile(r"^(\w+://)?.*@", re.DOTALL)


class SettingsError(InvalidInputError):
    """The settings cannot be used; ``problems`` lists all that is wrong, one line each.

    It has the ids of a wrong command line: the process prints it to stderr, ends with exit code 1 before it does
    anything, and the remedy is to correct the input.
    """

    err_id: ClassVar[str | None] = "ERR-PYOCO-0018"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0018"

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the settings are not valid:" + "".join(f"\n  {problem}" for problem in self.problems))


class SettingsWarning(msgspec.Struct, frozen=True):
    """A warning about the settings, which is logged once the log is set up."""

    text: str
    err_id: str | None = None


class Loaded(NamedTuple):
    """The result of loading."""

    settings: Settings
    warnings: list[SettingsWarning]


class _Findings(NamedTuple):
    """The problems and warnings found while loading."""

    problems: list[str]
    warnings: list[SettingsWarning]


class _Given(NamedTuple):
    """The text of a variable; ``origin`` names its file if it is not from the environment."""

    text: str
    origin: str = ""


class _Mistake(NamedTuple):
    """Return a problem that pydantic found, in our words: of one variable, or of several together."""

    variable: str | None
    texts: list[str]


class _VariablePlace(NamedTuple):
    """The place of a variable in the settings."""

    section: str
    name: str
    field: FieldInfo


def sections() -> dict[str, type[Section]]:
    """Return the sections of the settings by the name of their field, in order."""
    return {name: type(field.get_default()) for name, field in Settings.model_fields.items()}


_PLACES: Final[Mapping[str, _VariablePlace]] = {
    var_of(field).name: _VariablePlace(section, name, field)
    for section, kind in sections().items()
    for name, field in kind.model_fields.items()
}
_OF_THE_FILE: Final = frozenset(name for name, place in _PLACES.items() if place.section == "env_file")


def load_settings(environ: Mapping[str, str] | None = None, *, directory: Path | None = None) -> Loaded:
    """Read and check all settings; raises ``SettingsError``.

    ``environ`` is the environment (by default the process's), which wins over the file; ``directory`` is where the path
    of the file starts (by default the current one). A variable that is set to nothing counts as not set. A wrong
    setting of the log is a warning, so that it never keeps a service from starting.
    """
    findings = _Findings([], [])
    real = os.environ if environ is None else environ
    in_environment = {name: _Given(text) for name, text in real.items() if name.upper().startswith(PREFIX)}
    given = {**_in_file(in_environment, directory or Path(), findings), **in_environment}
    findings.warnings.extend(_unknown(given))
    settings = _checked(given, findings)
    if settings is None or findings.problems:
        raise SettingsError(dict.fromkeys(findings.problems))
    findings.warnings.extend(map(SettingsWarning, doubts(settings)))
    return Loaded(settings, findings.warnings)


def _in_file(in_environment: Mapping[str, _Given], directory: Path, findings: _Findings) -> dict[str, _Given]:
    """Return our variables in the file; none if it must not be read, or is optional and missing."""
    chosen = _checked({name: given for name, given in in_environment.items() if name in _OF_THE_FILE}, findings)
    if chosen is None or not chosen.env_file.load:
        return {}
    path = chosen.env_file.path
    try:
        text = (directory / path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if "path" in chosen.env_file.model_fields_set:
            findings.problems.append(f"PYOCO_ENV_FILE='{path}': there is no such file")
        return {}
    except (OSError, UnicodeDecodeError) as error:
        findings.problems.append(f"PYOCO_ENV_FILE='{path}': it cannot be read ({error})")
        return {}
    return _parsed(text, str(path), findings)


def _parsed(text: str, path: str, findings: _Findings) -> dict[str, _Given]:
    """Return our variables in a file's text; values are literal, ``${...}`` is not expanded."""
    found = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:  # the line itself is not shown: it may hold a secret
            problem = f"{path}, line {binding.original.line}: this is not NAME=value"
            if PREFIX in binding.original.string.upper():
                findings.problems.append(problem)
            else:  # other programs may use the file, too
                findings.warnings.append(SettingsWarning(problem))
        elif binding.key in _OF_THE_FILE:
            findings.warnings.append(
                SettingsWarning(f"{binding.key} has no effect in {path}: set it in the environment")
            )
        elif binding.key and binding.key.upper().startswith(PREFIX):
            found[binding.key] = _Given(binding.value or "", f" (in {path})")
    return found


def _unknown(names: Iterable[str]) -> Iterator[SettingsWarning]:
    for name in sorted(set(names) - _PLACES.keys() - OF_PYOCO - OF_CLIENTS):
        alike = difflib.get_close_matches(name.upper(), _PLACES, n=1, cutoff=0.75)
        yield SettingsWarning(f"{name} is not a setting" + (f"; did you mean {alike[0]}?" if alike else ""))


def _checked(given: Mapping[str, _Given], findings: _Findings) -> Settings | None:
    """Return the settings, or None with the problems in ``findings``."""
    values: dict[str, dict[str, str]] = {}
    for name, (text, _) in given.items():
        place = _PLACES.get(name)
        if place and text.strip():
            value = text if var_of(place.field).secret else text.strip()
            values.setdefault(place.section, {})[place.name] = value
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        mistakes = [_mistake(item["loc"], item.get("ctx", {})) for item in error.errors(include_url=False)]
    of_the_log = {name for name, _ in mistakes if name and _PLACES[name].section == "logs"}
    for name in sorted(of_the_log):
        text = f"{_problem(name, given[name])}; the default is used instead"
        findings.warnings.append(SettingsWarning(text, "ERR-PYOCO-0013"))
    serious = [mistake for mistake in mistakes if mistake.variable not in of_the_log]
    for variable, texts in serious:
        findings.problems.extend([_problem(variable, given[variable])] if variable else texts)
    return None if serious else _checked({name: given[name] for name in given.keys() - of_the_log}, findings)


def _mistake(location: tuple[int | str, ...], context: Mapping[str, object]) -> _Mistake:
    section, *field = map(str, location)
    if field:
        return _Mistake(var_of(sections()[section].model_fields[field[0]]).name, [])
    return _Mistake(None, str(context["error"]).splitlines())


def _problem(name: str, given: _Given) -> str:
    """Describe the problem of one variable: its name, its value unless secret, and the allowed values."""
    field = _PLACES[name].field
    allowed = next(note.words for note in field.metadata if isinstance(note, Allowed))
    value = "" if var_of(field).secret else f"={_shown(given.text)!r}"
    return f"{name}{value}{given.origin} must be {allowed}"


def _shown(text: str) -> str:
    """Return a value for a text: without a password, and cut."""
    safe = _LOGIN.sub(r"\1***@", text.strip())
    return safe if len(safe) <= LONGEST_SHOWN else f"{safe[:LONGEST_SHOWN]}…"
