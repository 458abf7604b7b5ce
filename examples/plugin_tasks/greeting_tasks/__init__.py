"""A package of tasks. What its entry point names is called once, with a registry to put tasks into."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
from pyoco.discovery.plugins import PluginRegistry


def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


def sign(text: str, author: str = "anonymous") -> str:
    """Put a name under a text."""
    return f"{text} ({author})"


def register_tasks(registry: PluginRegistry) -> None:
    """Offer both under names that say where they come from."""
    registry.register_callable(greet, name="greeting_greet")
    registry.register_callable(sign, name="greeting_sign")
