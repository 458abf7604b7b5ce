"""What ``pyoco-server dev`` prints: addresses, flows, and the results of changed files."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from pyoco_server.cli.server.dev_worker import shown_path
from pyoco_server.client.config import server_url
from pyoco_server.errors import InvalidInputError

_IDS: Final = "[MSG-PYOCO-0018/ERR-PYOCO-0018]"
_INDENT: Final = 2
_NAMES: Final = 11


class DevConsole:
    """Prints the addresses, the flows, and whether a changed file was loaded."""

    def __init__(self, console: Console, url: str) -> None:
        self._console = console
        self._url = url
        self._shown: Mapping[str, str] | None = None

    def is_up(self, nats_url: str, durability: str, *, asks_for_keys: bool) -> None:
        """Print the addresses; everything but the worker is running."""
        self._say(Text.assemble(("pyoco-server", "bold"), f" is at {self._url}; Ctrl-C stops everything"))
        self._item("dashboard", f"{self._url}/")
        self._item("API", f"{self._url}/docs")
        self._item("NATS", f"{nats_url}  (for more workers)")
        self._item("durability", durability)
        if asks_for_keys:
            make = f"pyoco-server keys create --tenant NAME --nats-url {nats_url}"
            self._item("keys", f"asked for (PYOCO_HTTP_AUTH_MODE, perhaps in .env): {make}")

    def found(self, origins: Mapping[str, str], changed: Sequence[str]) -> None:
        """Print the flows, if they are new."""
        if changed:
            self._say(Text.assemble((f"{', '.join(changed)} changed", "green"), ": the worker has it"))
        if origins == self._shown:
            return
        if not origins:
            self._item("flows", "none: only runs of a flow.yaml can be run  (pyoco-server dev FILE…)")
        by_file: defaultdict[str, list[str]] = defaultdict(list)
        for name, file in origins.items():
            by_file[shown_path(file)].append(name)
        for count, (file, names) in enumerate(by_file.items()):
            self._item("flows" if count == 0 else "", f"{', '.join(names)}  ({file})")
        if origins and self._shown is None:
            self._item("try", f"pyoco-client {self._address()}submit {next(iter(origins))} --wait")
        self._shown = dict(origins)

    def refused(self, error: str, changed: Sequence[str], *, old_stay: bool) -> None:
        """Print why the files cannot be loaded."""
        begin = f"{', '.join(changed)} changed, but " if changed else ""
        self._say(Text.assemble((f"error: {begin}{error} {_IDS}", "red")))
        stays = "the flows stay as they were" if old_stay else "there is no worker"
        self._say(Text(f"{stays} until the file is corrected and saved; no restart is needed"))

    def died(self, ending: str) -> None:
        """Print that the worker has ended by itself."""
        self._say(Text(f"the worker {ending}; it is started again, and resumes its runs", style="yellow"))

    def _address(self) -> str:
        """Return the option with which a client finds the gateway; empty if it is the default."""
        try:
            return "" if server_url() == self._url else f"--server {self._url} "
        except InvalidInputError:  # the variable is not valid; the client reports that
            return f"--server {self._url} "

    def _item(self, name: str, value: str) -> None:
        self._say(Text.assemble(" " * _INDENT, (f"{name:<{_NAMES}}", "dim"), value))

    def _say(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
