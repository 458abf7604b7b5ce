"""The ``pyoco-server`` command."""
