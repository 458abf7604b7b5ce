"""Logs that were recorded once and are read for ever: no later version may read them differently."""
