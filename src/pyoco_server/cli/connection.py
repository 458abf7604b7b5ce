"""What every command that talks to a gateway has in common: where it is, who asks, and in which language."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyoco_server.cli import argument_types as kinds
from pyoco_server.cli.usage import UsageError
from pyoco_server.client import Client
from pyoco_server.client.setup import API_KEY_VARIABLE, DEFAULT_API_KEY_HEADER, DEFAULT_SERVER, SERVER_VARIABLE
from pyoco_server.errors import InvalidInputError
from pyoco_server.messages import Language, language_of_locale

_EXAMPLE: Final = f"pyoco-client --server {DEFAULT_SERVER} list"


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Options that may stand before the subcommand and after it; the later wins."""
    group = parser.add_argument_group("gateway")
    group.add_argument(
        "--server",
        metavar="URL",
        type=kinds.name,
        default=argparse.SUPPRESS,
        help=f"where the gateway is (${SERVER_VARIABLE}, else {DEFAULT_SERVER})",
    )
    group.add_argument(
        "--api-key", metavar="KEY", type=kinds.name, default=argparse.SUPPRESS, help=f"an API key (${API_KEY_VARIABLE})"
    )
    group.add_argument(
        "--api-key-header",
        metavar="NAME",
        type=kinds.name,
        default=argparse.SUPPRESS,
        help=f"the header the key goes in ({DEFAULT_API_KEY_HEADER})",
    )
    group.add_argument(
        "--lang",
        choices=[language.value for language in Language],
        default=argparse.SUPPRESS,
        help="the language of error messages (that of the locale, else en)",
    )


def chosen_language(argv: Sequence[str]) -> Language:
    """The language to tell mistakes in: known before the arguments are, since those may be the mistake."""
    given = ""
    for at, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        if name == "--lang":
            given = value if equals else next(iter(argv[at + 1 :]), "")
    return Language(given) if given in set(Language) else language_of_locale()


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """A client as the options and the environment say; what cannot be sent at all is a mistake in the arguments."""
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
    """What is wrong with an argument of the client, by the option it was given with, or the variable."""
    name, colon, problem = str(error).partition(":")
    return f"--{name.replace('_', '-')}{colon}{problem}" if name.islower() else str(error)
