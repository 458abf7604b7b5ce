"""Settings of every test: reproducible random tests in CI, and child processes that receive Ctrl-C.

Hypothesis searches for new examples on a developer's machine and repeats the same ones in CI.
"""

import os
import signal

from hypothesis import settings

# No deadlines: any example can take long on a machine that is busy with other work.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell without job control starts background commands with SIGINT ignored, and every child inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
