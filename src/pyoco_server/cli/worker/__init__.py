"""The ``pyoco-worker`` command."""
