"""Ours beside its peers: the same three-step no-op runs, on the same machine, in one run."""
