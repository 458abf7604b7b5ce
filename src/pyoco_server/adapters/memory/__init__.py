"""The ports in memory: complete, and held to the same contract suite as the adapters on NATS."""
