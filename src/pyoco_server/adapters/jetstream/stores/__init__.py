"""The ports of the application on JetStream: log, queue, snapshots, registries."""
