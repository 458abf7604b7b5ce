"""Reads a flow.yaml into a flow, and imports and runs nothing of it. ``document.read_flow_yaml`` is the entry."""
