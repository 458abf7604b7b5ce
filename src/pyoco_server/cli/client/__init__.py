"""The ``pyoco-client`` command."""
