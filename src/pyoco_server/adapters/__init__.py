"""Adapters: how the ports are served."""
