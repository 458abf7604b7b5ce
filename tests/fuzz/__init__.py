"""Whatever comes in at the edges: no crash, no hang, no memory beyond what the input is worth.

``PYOCO_FUZZ=50`` tries fifty times as many inputs, and others every time (``make fuzz``).
"""
