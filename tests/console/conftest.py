"""One node, one browser, and pages in it. Without a browser the tests that need one say so and are skipped.

All of it is a module's: Playwright has an event loop running in the main thread as long as it lives, beside
which no coroutine of another test could run.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

import nuncius.testing
from nuncius.client import Client
from nuncius.testing import Broker

BROWSER = Path(os.environ.get("NUNCIUS_BROWSER", Path(__file__).parents[2] / ".browser" / "chromium"))
DESKTOP = ViewportSize(width=1280, height=800)
PHONE = ViewportSize(width=390, height=844)
# There is no graphics card, and drawing what moves on the processor takes more than everything else together.
FRUGAL = ["--disable-gpu", "--disable-software-rasterizer", "--force-prefers-reduced-motion"]
# One process for all pages of a context: what one of them has compiled, the others need not.
FRUGAL += ["--process-per-site"]
# Names for the tests of proxies; nothing of it leaves this machine.
FRUGAL += ["--host-resolver-rules=MAP *.example.org 127.0.0.1"]
PATIENCE = 60_000.0  # milliseconds, on a machine that does much else

expect.set_options(timeout=PATIENCE)


class Visitor:
    """Looks at pages of the console, and hears what the browser complains about."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", lambda request: self.complaints.append(f"{request.url} failed"))
        page.on("dialog", self._interrupted)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _interrupted(self, dialog: Dialog) -> None:
        """Nothing of ours opens a window of the browser's own; some script of a message might."""
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def open(self, path: str) -> Page:
        """Opens a page and waits until it is live."""
        self.page.goto(self.base + path)
        self.page.wait_for_function("window.did_handshake")
        return self.page

    def press(self, button: str) -> None:
        """A button on the page, when no dialog is in its way any more."""
        self.alone()
        self.page.locator("#app").get_by_role("button", name=button, exact=True).click()

    def alone(self) -> None:
        """Waits until all dialogs are closed."""
        expect(self.page.get_by_role("dialog")).to_have_count(0)

    def agree(self, button: str) -> None:
        """Presses a button in the dialog that asks."""
        self.page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_role("dialog").get_by_label(label).fill(text)

    def hears(self, text: str | re.Pattern[str]) -> None:
        """Waits until the console says that."""
        expect(self.page.locator(".q-notification", has_text=text).first).to_be_visible()


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node") / "ready.json"


@pytest.fixture(scope="module")
def settings() -> list[str]:
    """More options for the node; a module may have others."""
    return ["--stomp-port=0", "--tribbler-port=0", "--retry-delay=0", "--max-attempts=1"]


@pytest.fixture(scope="module")
def node(ready: Path, settings: list[str]) -> Iterator[Broker]:
    with nuncius.testing.broker("--http-port=0", f"--ready-file={ready}", *settings) as started:
        yield started


@pytest.fixture(scope="module")
def ports(node: Broker, ready: Path) -> dict[str, int]:
    assert node.pid
    found: dict[str, int] = json.loads(ready.read_text())["ports"]
    return found


@pytest.fixture
def client(node: Broker) -> Iterator[Client]:
    with node.client() as connected:
        yield connected


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not BROWSER.exists():
        pytest.skip("no browser: .ci/browser fetches one, or NUNCIUS_BROWSER names one")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=FRUGAL)
        yield started
        started.close()


@pytest.fixture(scope="module")
def base(ports: dict[str, int]) -> str:
    return f"http://127.0.0.1:{ports['http']}/console/"


def keep_process(context: BrowserContext, base: str) -> None:
    """An empty page of the console stays open: with the last page their process would end."""
    context.new_page().goto(f"{base}nothing")


@pytest.fixture(scope="module")
def desktop(browser: Browser, base: str) -> Iterator[BrowserContext]:
    """A desktop, in the light. It is kept, because what a browser has loaded it need not load again."""
    context = browser.new_context(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce")
    keep_process(context, base)
    yield context
    context.close()


@pytest.fixture(scope="module")
def phone(browser: Browser, base: str) -> Iterator[BrowserContext]:
    """A phone, in the dark."""
    context = browser.new_context(viewport=PHONE, color_scheme="dark", reduced_motion="reduce")
    keep_process(context, base)
    yield context
    context.close()


@pytest.fixture
def visitor(desktop: BrowserContext, base: str) -> Iterator[Visitor]:
    """A window on a desktop; what the browser complained about fails the test."""
    made = Visitor(desktop.new_page(), base)
    yield made
    made.page.close()
    desktop.clear_cookies()
    assert made.complaints == []


@pytest.fixture(scope="session")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Page, str], None]:
    """Keeps a picture of a page: in NUNCIUS_SCREENSHOTS, or where pytest keeps its files."""
    chosen = os.environ.get("NUNCIUS_SCREENSHOTS")
    directory = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    directory.mkdir(parents=True, exist_ok=True)

    def picture(page: Page, name: str) -> None:
        page.screenshot(path=directory / f"{name}.png")

    return picture
