"""Makes ``python -m pyoco_server.cli.server`` the ``pyoco-server`` command."""

import sys

from pyoco_server.cli.server.main import main

sys.exit(main())
