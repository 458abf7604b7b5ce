"""The HTTP gateway: each handler parses a request, calls one use case and renders the answer."""
