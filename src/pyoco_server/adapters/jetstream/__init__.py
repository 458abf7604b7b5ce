"""Everything on NATS JetStream: the only place that knows of NATS."""
