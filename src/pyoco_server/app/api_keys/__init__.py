"""API keys: issued, recognised, revoked."""
