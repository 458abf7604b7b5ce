import pytest

from tests.client.conftest import gateway, plain_environment, started_gateway

__all__ = ["gateway", "plain_environment", "started_gateway"]


@pytest.fixture(autouse=True)
def _plain_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell says must not decide a test."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
