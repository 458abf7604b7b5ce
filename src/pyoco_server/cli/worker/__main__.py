"""Makes ``python -m pyoco_server.cli.worker`` the ``pyoco-worker`` command."""

import sys

from pyoco_server.cli.worker.main import main

sys.exit(main())
