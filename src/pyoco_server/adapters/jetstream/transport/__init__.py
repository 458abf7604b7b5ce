"""The NATS client: the connection's protocol, requests and errors."""
