"""Random tests look for something new on a developer's machine, and for the same things every time in CI."""

import os

from hypothesis import settings

# No deadlines: on a machine that is busy with something else, any example may take long.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")
