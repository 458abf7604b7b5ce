"""Run the whole platform under faults, with real servers and processes, and check its guarantees.

``python -m chaos --minutes 5 --seed 7 --topology three --report report.md``
"""
