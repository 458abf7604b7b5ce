"""What can keep a run of chaos from being one."""


class NotPossibleError(Exception):
    """What was asked for cannot be done on this machine, or by this user; says why."""
