"""The options of every command that sends requests to a gateway: its address, the API key, the language."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.client import Client
from pyoco_server.client.config import API_KEY_VARIABLE, DEFAULT_API_KEY_HEADER, DEFAULT_SERVER, SERVER_VARIABLE
from pyoco_server.errors import InvalidInputError
from pyoco_server.messages import Language, language_of_locale

_EXAMPLE: Final = f"pyoco-client --server {DEFAULT_SERVER} list"


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add options that may stand before the subcommand or after it; the later one wins."""
    group = parser.add_argument_group("gateway")
    group.add_argument(
        "--server",
        metavar="URL",
        type=kinds.name,
        default=argparse.SUPPRESS,
        help=f"the address of the gateway (${SERVER_VARIABLE}, else {DEFAULT_SERVER})",
    )
    group.add_argument(
        "--api-key", metavar="KEY", type=kinds.name, default=argparse.SUPPRESS, help=f"an API key (${API_KEY_VARIABLE})"
    )
    group.add_argument(
        "--api-key-header",
        metavar="NAME",
        type=kinds.name,
        default=argparse.SUPPRESS,
        help=f"the header of the key ({DEFAULT_API_KEY_HEADER})",
    )
    group.add_argument(
        "--lang",
        choices=[language.value for language in Language],
        default=argparse.SUPPRESS,
        help="the language of error messages (that of the locale, else en)",
    )


def chosen_language(argv: Sequence[str]) -> Language:
    """Return the language of error messages; it is read before the arguments are parsed, as they may be wrong."""
    given = ""
    for at, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        if name == "--lang":
            given = value if equals else next(iter(argv[at + 1 :]), "")
    return Language(given) if given in set(Language) else language_of_locale()


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """Return a client; UsageError for what it cannot send, as that is a mistake in the arguments."""
    try:
        with _client(arguments) as client:
            yield client
    except UsageError:
        raise
    except InvalidInputError as error:
        raise UsageError(str(error), example=arguments.example) from error


def _client(arguments: argparse.Namespace) -> Client:
    try:
        return Client(
            getattr(arguments, "server", None),
            api_key=getattr(arguments, "api_key", None),
            api_key_header=getattr(arguments, "api_key_header", DEFAULT_API_KEY_HEADER),
            lang=getattr(arguments, "lang", None) or language_of_locale(),
        )
    except InvalidInputError as error:
        raise UsageError(by_option(error), example=_EXAMPLE) from error


def by_option(error: InvalidInputError) -> str:
    """Return the error of an argument of the client, with the name of its option or variable."""
    name, colon, problem = str(error).partition(":")
    return f"--{name.replace('_', '-')}{colon}{problem}" if name.islower() else str(error)
