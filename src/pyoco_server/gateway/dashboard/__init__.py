"""The dashboard: static files that use the same API as every other client."""

from pyoco_server.gateway.dashboard.serving import router

__all__ = ["router"]
