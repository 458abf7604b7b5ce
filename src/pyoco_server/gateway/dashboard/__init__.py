"""The dashboard: static files that talk to the same API as everybody else."""

from pyoco_server.gateway.dashboard.serving import router

__all__ = ["router"]
