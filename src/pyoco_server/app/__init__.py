"""Use cases over ports: how an execution is driven, without knowing where it is stored or runs."""
