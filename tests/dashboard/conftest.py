"""One site and one browser for all tests that leave them as they are."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.real_nats import NatsServer
from tests.dashboard.browser import Browsing, Visit, visiting
from tests.dashboard.site import Site, a_site

Look = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The shared site. Tests must not stop anything of it."""
    with a_site(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server for one test, which may stop it."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture(scope="session")
def browsing() -> Iterator[Browsing]:
    """The browser; it fails where there is none, and says how to get it."""
    made = Browsing()
    yield made
    made.close()


@pytest.fixture
def look(browsing: Browsing, site: Site) -> Look:
    """Look at the shared site: ``with look() as visit``."""
    return lambda url=site.url, **options: visiting(browsing.open(), url, **options)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Tests that use the browser run in the browser's thread."""
    browsing: Any = pyfuncitem.funcargs.get("browsing")
    if not isinstance(browsing, Browsing):
        look = pyfuncitem.funcargs.get("look")
        if look is None:
            return None
        browsing = pyfuncitem._request.getfixturevalue("browsing")
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}
    browsing.do(functools.partial(pyfuncitem.obj, **given))
    return True
