"""A project that uses the platform: type-checked against the installed package, never run."""
