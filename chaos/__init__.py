"""The whole platform under faults: real servers, real processes, and what must hold all the same.

``python -m chaos --minutes 5 --seed 7 --topology three --report report.md``
"""
