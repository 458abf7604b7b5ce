"""The functions flow.yaml names: no decorators, easy to test by themselves."""

# mypy: disable-error-code="import-untyped"
from pyoco.core.context import Context


def check_stock() -> int:
    """How many there are."""
    return 100


def check_address(address: str) -> bool:
    """Is there a street and a town?"""
    return "," in address


def rate(stock: int, amount: int) -> str:
    """Orders of more than half of the stock are large."""
    return "large" if amount > stock / 2 else "small"


def pack(kind: str, amount: int) -> str:
    """Put it into something."""
    return f"{kind} of {amount}"


def ship(ctx: Context, address: str) -> str:
    """Send the parcel."""
    return f"{ctx.scratch['parcel']} to {address}"
