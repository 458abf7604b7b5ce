"""Use cases over ports: how an execution is driven, with no word about where it is stored or runs."""
