"""Fuzzing of all inputs: no crash, no hang, and memory in proportion to the input.

``PYOCO_FUZZ=50`` tries fifty times as many inputs, and others every time (``make fuzz``).
"""
