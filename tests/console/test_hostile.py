"""Bad and hostile content is shown harmlessly, whoever put it there; and who may only look can only look."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from console.conftest import Visitor
from fix_store import execute
from nuncius.testing import Broker

SCRIPT = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
NAME = f"<b>bold</b>{SCRIPT}{{{{ constructor.constructor('window.hurt = 1')() }}}}"
LARGE = bytes(range(65, 91)) * 40_330  # about a megabyte
BINARY = bytes(range(256)) * 4
WRITING = "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe \x1b[31m\0"


@pytest.fixture(scope="module")
def settings() -> list[str]:
    return ["--read-only-console"]


@pytest.fixture(scope="module", autouse=True)
def things(node: Broker) -> Iterator[None]:
    with node.client(name=NAME) as client:
        client.create_queue(NAME)
        client.create_queue("bodies")
        client.put(NAME, SCRIPT)
        for body in (LARGE, BINARY, SCRIPT.encode(), WRITING.encode(), b""):
            client.put("bodies", body)
        client.publish(NAME, SCRIPT, key=NAME, headers={NAME: SCRIPT})
        client.subscribe(NAME, NAME, start="earliest")
        literal = NAME.replace("'", "''")
        execute(
            node.dsn,
            "insert into nuncius.pipeline_runs (job_name, settings, state, error, summary)"
            f" values ('{literal}', '{{}}', 'failed', '{literal}', '{{\"report\": \"/etc/passwd\"}}')",
        )
        yield


def is_unhurt(page: Page) -> bool:
    """Nothing ran, nothing was made out of text."""
    made = page.locator("#app b, #app img[src=x], .q-dialog b, .q-dialog img[src=x]")
    return page.evaluate("window.hurt === undefined") is True and made.count() == 0


@pytest.mark.parametrize(
    "path",
    [
        "",
        "queues",
        f"queue?name={quote(NAME, safe='')}",
        "topics",
        f"topic?name={quote(NAME, safe='')}",
        "subscriptions",
        f"subscription?topic={quote(NAME, safe='')}&name={quote(NAME, safe='')}",
        "clients",
        "pipelines",
        f"queue?name={quote(SCRIPT, safe='')}",
    ],
)
def test_names_are_text(visitor: Visitor, path: str) -> None:
    """Names and bodies full of HTML are shown as what they are, on every page."""
    page = visitor.open(path)
    if path:
        expect(page.get_by_text("window.hurt").first).to_be_visible()
    assert is_unhurt(page)


def test_an_opened_message_is_text(visitor: Visitor) -> None:
    """Key, headers and body of a message do nothing when it is opened, in any view."""
    page = visitor.open(f"topic?name={quote(NAME, safe='')}")
    page.get_by_role("button", name="0", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text(SCRIPT)
    dialog.get_by_role("button", name="Hex").click()
    expect(dialog.locator("pre")).to_contain_text("3c 73 63 72 69 70 74 3e")
    assert is_unhurt(page)


def test_large_bodies_are_cut_and_can_be_downloaded(visitor: Visitor, tmp_path: Path) -> None:
    """Of a megabyte only the beginning is shown; the download is all of it."""
    page = visitor.open("queue?name=bodies")
    page.locator(".paged tbody tr").filter(has_text="1.0 MB").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Only the first 16.4 KB are shown")
    assert len(dialog.locator("pre").inner_text()) < 20_000
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "body")
    assert (tmp_path / "body").read_bytes() == LARGE
    assert download.value.suggested_filename.startswith("bodies-")


def test_binary_bodies_are_shown_as_bytes(visitor: Visitor) -> None:
    """What is no text opens as hexadecimal; controls and marks that turn writing round are made visible."""
    page = visitor.open("queue?name=bodies")
    page.locator(".paged tbody tr").filter(has_text="1.0 KB").get_by_role("button").click()
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text("00000000  00 01 02 03")
    page.keyboard.press("Escape")
    row = page.locator(".paged tbody tr").filter(has_text="txt.exe")
    expect(row).to_contain_text("⟨U+202E⟩txt.exe ␛[31m␀")


def test_a_file_that_is_no_report_is_not_shown(visitor: Visitor) -> None:
    """A run that names some file as its report gives nobody that file."""
    page = visitor.open("pipelines")
    page.locator(".paged tbody button.open").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("bold")
    expect(page.get_by_role("link", name="Open its report")).to_have_count(0)
    assert page.request.get(visitor.base + "report?run=1").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "queues",
        "queue?name=bodies",
        "topics",
        f"topic?name={quote(NAME, safe='')}",
        f"subscription?topic={quote(NAME, safe='')}&name={quote(NAME, safe='')}",
        "clients",
    ],
)
def test_a_read_only_console_offers_no_change(visitor: Visitor, path: str) -> None:
    """There is no button that changes anything, and no row to choose; that it is so is said."""
    page = visitor.open(path)
    expect(page.locator(".badge")).to_have_text("read only")
    words = {
        "Put",
        "Take",
        "Purge",
        "Publish",
        "Seek",
        "Replay",
        "Remove",
        "Move",
        "New queue",
        "Retry failed",
    }
    assert words.isdisjoint(page.get_by_role("button").all_inner_texts())
    assert page.get_by_role("checkbox").count() == 0
    assert page.get_by_role("button", name="Disconnect").count() == 0
