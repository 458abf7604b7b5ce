import pytest

from tests.client.conftest import gateway, started_gateway

__all__ = ["gateway", "started_gateway"]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell says must not decide a test."""
    for name in ("PYOCO_SERVER_URL", "PYOCO_API_KEY", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
