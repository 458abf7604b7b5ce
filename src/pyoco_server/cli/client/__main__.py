"""Makes ``python -m pyoco_server.cli.client`` the ``pyoco-client`` command."""

import sys

from pyoco_server.cli.client.main import main

sys.exit(main())
