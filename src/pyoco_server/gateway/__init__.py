"""The HTTP gateway: handlers parse, call one use case, and render."""
