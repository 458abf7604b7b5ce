"""What the platform says when something goes wrong: one catalogue for logs, HTTP, dead letters and the command line."""

from pyoco_server.messages.catalogue import CATALOGUE, CatalogueEntry, entry_of
from pyoco_server.messages.language import Language, language_of_locale, negotiate, server_language
from pyoco_server.messages.rendering import body_of, error_body

__all__ = [
    "CATALOGUE",
    "CatalogueEntry",
    "Language",
    "body_of",
    "entry_of",
    "error_body",
    "language_of_locale",
    "negotiate",
    "server_language",
]
