"""A real browser with a page that must have no errors, break no policy, and send nothing to other hosts."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, sync_playwright
from tools.dashboard_setup import browser

R = TypeVar("R")
WIDE = {"width": 1360, "height": 840}
PHONE = {"width": 390, "height": 800}
_FOREIGN_SITES = [
    "--host-resolver-rules=MAP *.example 127.0.0.1",  # names of foreign sites, and rebound ones, lead to this machine
    "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",  # the gateway protects itself
]
_NOTE_BREACHES = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


class Browsing:
    """The browser in a thread of its own: its driver runs an event loop there, which must not meet another one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def do(self, work: Callable[[], R]) -> R:
        """Do something in that thread."""
        return self._thread.submit(work).result()

    def open(self) -> Browser:
        """The browser, started when it is first needed. Only in its thread."""
        if self._browser is None:
            self._playwright = sync_playwright().start()
            flags = [*_FOREIGN_SITES, "--no-sandbox"] if os.geteuid() == 0 else _FOREIGN_SITES
            self._browser = self._playwright.chromium.launch(executable_path=browser(), args=flags)
        return self._browser

    def close(self) -> None:
        def end() -> None:
            if self._browser is not None:
                self._browser.close()
            if self._playwright is not None:
                self._playwright.stop()

        self.do(end)
        self._thread.shutdown()


class Visit:
    """A user of the dashboard."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.context = context
        self.page: Page = context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", self._noted)
        self.page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        self.page.on("request", self._asked)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, f"blob:{self.url}")):
            self.foreign.append(request.url)

    def _noted(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def go(self, place: str = "") -> Page:
        """Open a view of the dashboard in a newly loaded page."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{place}")
        return self.page

    def move(self, place: str) -> Page:
        """Go to another place in the page that is open."""
        self.page.evaluate("place => { location.hash = place; }", place)
        return self.page

    def check(self, *expected: str) -> None:
        """Check that there were no errors but the expected ones."""
        unexpected = [error for error in self.errors if not any(part in error for part in expected)]
        assert not unexpected, unexpected
        assert not self.foreign, self.foreign


@contextlib.contextmanager
def visiting(opened: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """A visit with cookies, storage and settings of its own."""
    context = opened.new_context(**{"viewport": WIDE, "locale": "en-GB", **options})
    context.set_default_timeout(8_000)
    context.add_init_script(_NOTE_BREACHES)
    try:
        yield Visit(context, url)
    finally:
        context.close()
