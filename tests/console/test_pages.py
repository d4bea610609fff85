"""Every page opens without a complaint, at any width, and shows what was put through the doors."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from stomp import Connection12

from console.conftest import DESKTOP, PHONE, Visitor
from fix_store import execute
from nuncius.client import Client
from nuncius.testing import Broker

PATHS = {
    "overview": "",
    "queues": "queues",
    "queue": "queue?name=orders",
    "topics": "topics",
    "topic": "topic?name=news",
    "subscriptions": "subscriptions",
    "subscription": "subscription?topic=news&name=reader",
    "clients": "clients",
    "cluster": "cluster",
    "pipelines": "pipelines",
    "store": "store",
}


@pytest.fixture(scope="module", autouse=True)
def things(node, ports: dict[str, int]) -> None:  # type: ignore[no-untyped-def]
    """A queue, a topic with a subscription, and a message from another door."""
    with node.client(name="clerk") as client:
        client.create_queue("orders")
        for n in range(30):
            client.put("orders", f'{{"order": {n}}}', priority=1 + n % 10)
        client.create_topic("news", partitions=2)
        client.subscribe("news", "reader", start="earliest")
        for n in range(60):
            client.publish("news", f"piece {n}", key=str(n))
    stomp = Connection12([("127.0.0.1", ports["stomp"])])
    stomp.connect(wait=True)
    stomp.send("/topic/weather", "sunny", receipt="sent")
    stomp.disconnect()


@pytest.mark.parametrize("name", PATHS)
def test_a_page_opens_at_any_width(
    name: str, desktop: BrowserContext, phone: BrowserContext, base: str, keep: Callable[[Page, str], None]
) -> None:
    """Every page opens without an error in the browser's log, in the light on a desktop and in the dark on a
    phone, where nothing is wider than the screen."""
    for context, size, is_dark in ((desktop, DESKTOP, False), (phone, PHONE, True)):
        visitor = Visitor(context.new_page(), base)
        page = visitor.open(PATHS[name])
        expect(page.locator("nav a.here")).to_have_count(1)
        expect(page.locator(".trouble")).to_be_hidden()
        assert page.evaluate("document.body.classList.contains('body--dark')") == is_dark
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        keep(page, f"{name}-{size['width']}")
        page.close()
        assert visitor.complaints == []


def test_pages_show_what_was_put_through_the_doors(visitor: Visitor) -> None:
    """A queue's depth, a topic's messages from two doors, a subscription's lag, and the client's name."""
    page = visitor.open("queues")
    expect(page.get_by_role("row", name="orders")).to_contain_text("30")
    page.get_by_role("link", name="orders").click()
    expect(page.locator("h1")).to_have_text("orders")
    expect(page.get_by_role("row").filter(has_text='{"order": 9}')).to_be_visible()
    page = visitor.open("topics")
    expect(page.get_by_role("row", name="weather")).to_contain_text("1")
    expect(page.get_by_role("row", name="news")).to_contain_text("60")
    page = visitor.open("topic?name=weather")
    expect(page.get_by_role("row").filter(has_text="sunny")).to_be_visible()
    page = visitor.open("subscriptions")
    expect(page.get_by_role("row", name="reader")).to_contain_text("60")
    page = visitor.open("clients")
    expect(page.get_by_role("row", name="clerk")).to_be_visible()
    page = visitor.open("cluster")
    expect(page.get_by_role("row", name="writer, reader, broker")).to_contain_text("alive")
    expect(page.locator("svg.ring text", has_text="0 keys")).to_be_visible()
    page = visitor.open("store")
    expect(page.get_by_role("row", name="entries")).to_be_visible()


def test_a_table_is_sorted_searched_and_paged_by_the_store(visitor: Visitor) -> None:
    """Only the rows of a page come to the browser; a click on a head sorts, the box searches, the arrow turns
    the page."""
    page = visitor.open("queue?name=orders")
    rows = page.locator(".paged tbody tr")
    expect(rows).to_have_count(20)
    expect(page.locator(".q-table__bottom").last).to_contain_text("1-20 of 30")
    page.locator(".q-table__bottom button:has-text('chevron_right')").last.click()
    expect(rows).to_have_count(10)
    page.get_by_role("columnheader", name="Age", exact=True).click()
    expect(rows.first).to_contain_text('{"order": 0}')
    page = visitor.open("topics")
    page.keyboard.press("/")
    page.keyboard.type("WEATH")
    expect(page.locator(".paged tbody tr")).to_have_count(1)
    expect(page.locator(".paged tbody tr")).to_contain_text("weather")


def test_who_looks_at_a_page_that_is_gone_is_brought_back(visitor: Visitor, client: Client) -> None:
    """A queue that has become shorter shows its messages, wherever one was in it."""
    client.create_queue("shrinking")
    for n in range(25):
        client.put("shrinking", f"message {n}")
    page = visitor.open("queue?name=shrinking")
    page.locator(".q-table__bottom button:has-text('chevron_right')").last.click()
    expect(page.locator(".paged tbody tr")).to_have_count(5)
    client.take_batch("shrinking", limit=24)
    expect(page.locator(".paged tbody tr")).to_have_count(1)
    expect(page.locator(".paged tbody tr")).to_contain_text("message 24")


def test_what_is_searched_for_is_said(visitor: Visitor) -> None:
    """A link that searches fills the box; when nothing is found, that is said, not that there is nothing."""
    page = visitor.open("topic?name=news")
    page.get_by_role("link", name="Subscriptions of this topic").click()
    box = page.get_by_placeholder("Search by topic or subscriber")
    expect(box).to_have_value("news")
    expect(page.get_by_role("row", name="reader")).to_be_visible()
    page.wait_for_function("window.did_handshake")
    box.fill("nothing like it")
    expect(page.get_by_text("Nothing matches 'nothing like it'.")).to_be_visible()


def test_pages_are_live(visitor: Visitor, client: Client) -> None:
    """What arrives while a page is open appears on it, without a reload."""
    page = visitor.open("topic?name=news")
    page.evaluate("window.untouched = true")
    client.publish("news", "while you look")
    expect(page.get_by_role("row").filter(has_text="while you look")).to_be_visible()
    page = visitor.open("")
    before = page.locator(".card", has_text="Messages in queues").locator(".value")
    expect(before).not_to_have_text("")
    client.put("orders", "another")
    expect(before).to_have_text("31")
    assert page.evaluate("window.untouched") is None


def test_a_topic_is_browsed_by_offset_and_by_time(visitor: Visitor) -> None:
    """From an offset on, forth and back, and from a time on; what is no offset or time is said."""
    page = visitor.open("topic?name=weather")
    page.get_by_role("button", name="From an offset").click()
    place = page.get_by_label("Offset", exact=True)
    place.fill("1")
    place.press("Enter")
    expect(page.get_by_text("Nothing there.")).to_be_visible()
    visitor.press("Older")
    expect(page.get_by_role("row").filter(has_text="sunny")).to_be_visible()
    visitor.press("Newer")
    expect(page.get_by_text("Nothing there.")).to_be_visible()
    place.fill("one")
    visitor.press("Go")
    visitor.hears("an offset is a number from 0")
    page.get_by_role("button", name="From a time").click()
    place = page.get_by_label("Time, in UTC")
    place.fill("2020-01-01 00:00")
    visitor.press("Go")
    expect(page.get_by_role("row").filter(has_text="sunny")).to_be_visible()
    place.fill("2999-01-01")
    visitor.press("Go")
    expect(page.get_by_text("Nothing there.")).to_be_visible()
    place.fill("yesterday")
    visitor.press("Go")
    visitor.hears("write a time as")


def test_another_partition_is_shown_when_it_is_chosen(visitor: Visitor) -> None:
    """At once, from the offset that stands there; before a time is typed nothing is complained about."""
    page = visitor.open("topic?name=news")
    partition = page.locator(".paged").last.locator("tbody tr td:nth-child(2)").first
    for mode in ("From a time", "From an offset"):
        page.get_by_role("button", name=mode).click()
        expect(page.get_by_role("combobox", name="Partition")).to_be_visible()
        page.get_by_role("combobox", name="Partition").click()
        page.get_by_role("option", name="Partition 2" if mode == "From a time" else "Partition 1").click()
    expect(partition).to_have_text("1")
    page.get_by_role("combobox", name="Partition").click()
    page.get_by_role("option", name="Partition 2").click()
    expect(partition).to_have_text("2")
    expect(page.locator(".q-notification")).to_have_count(0)


def test_keys_and_colours(visitor: Visitor) -> None:
    """Keys lead to pages and explain themselves; the chosen colours stay."""
    page = visitor.open("")
    page.keyboard.press("3")
    expect(page.locator("h1")).to_have_text("Topics")
    page.wait_for_function("window.did_handshake")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("light or dark")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    visitor.press("Light or dark")
    expect(page.locator("body.body--dark")).to_have_count(1)
    page = visitor.open("queues")
    expect(page.locator("body.body--dark")).to_have_count(1)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")


def test_keys_reach_what_a_mouse_can(visitor: Visitor) -> None:
    """Heads of columns sort, a dialog begins in its first field, Enter agrees, and keys lead nowhere while it
    is open."""
    page = visitor.open("queue?name=orders")
    page.get_by_role("columnheader", name="Age", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".paged tbody tr").first).to_contain_text('{"order": 0}')
    page = visitor.open("queues")
    page.get_by_role("link", name="Queues").first.focus()
    visitor.press("New queue")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    visitor.hears("Made the queue 'by keys'")
    visitor.alone()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("3")
    page.keyboard.press("Escape")
    visitor.alone()
    expect(page.locator("h1")).to_have_text("Queues")


def test_the_way_back_is_shown(visitor: Visitor) -> None:
    """A page of one thing leads to the page of all; figures lead to what they count."""
    page = visitor.open("queue?name=orders")
    page.locator("header").get_by_role("link", name="Queues").click()
    expect(page.locator("h1")).to_have_text("Queues")
    page.locator("header").get_by_role("link", name="Nuncius").click()
    expect(page.locator("h1")).to_have_text("Overview")
    page.get_by_role("link", name="Messages in topics").click()
    expect(page.locator("h1")).to_have_text("Topics")


@pytest.mark.parametrize("path", ["queue?name=none", "topic?name=none", "subscription?topic=news&name=none"])
def test_what_is_not_there_is_said(visitor: Visitor, path: str) -> None:
    """A link to something that is gone leads to a sentence, not to an error."""
    page = visitor.open(path)
    expect(page.locator(".card").last).to_contain_text("none")
    assert quote("none") in page.url


def test_counts_that_stopped_at_their_bound_say_so(node: Broker, phone: BrowserContext, base: str) -> None:
    """Each priority is counted up to a bound, whose plus has room on a phone."""
    execute(
        node.dsn,
        "insert into nuncius.messages (queue_id, priority, message) select queue_id, 1 + n % 10, 'x'"
        " from nuncius.create_queue('deep'), generate_series(1, 21000) n",
    )
    visitor = Visitor(phone.new_page(), base)
    page = visitor.open("queue?name=deep")
    expect(page.locator(".bars .col").last).to_have_text("2,000+10")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.close()
    assert visitor.complaints == []
