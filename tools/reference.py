"""Write every page of the documentation that is generated from code, or check that they are current."""

import sys
from typing import Final

from tools import cli_doc, commands_doc, errors_doc, events_doc, http_doc, licences_doc, metrics_doc, settings_doc
from tools.pages import Pages, run

PAGES: Final[Pages] = {
    tool.PAGE: tool.page
    for tool in (http_doc, cli_doc, settings_doc, events_doc, commands_doc, errors_doc, metrics_doc, licences_doc)
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PAGES))
