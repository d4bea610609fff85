"""Everything that a page can change: it asks first, does what it says, says what it did, and is logged."""

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest
from playwright.sync_api import expect
from stomp import Connection12

from console.conftest import Visitor
from fix_store import execute
from nuncius.client import Client
from nuncius.store.driver import Connection
from nuncius.testing import Broker


def logged(node: Broker, what: str) -> list[str]:
    """Lines of the log about a change."""
    return [
        line
        for line in node.log.read_text().splitlines()
        if f'what="{what}"' in line or f"what={what} " in line
    ]


def test_messages_are_put_and_taken(visitor: Visitor, node: Broker, client: Client) -> None:
    """A message that is put is in the queue; one that is taken is shown and gone."""
    client.create_queue("work")
    page = visitor.open("queue?name=work")
    visitor.press("Put")
    visitor.fill("Body", '{"from": "the console"}')
    visitor.fill("Priority", "9")
    visitor.agree("Put")
    visitor.hears(re.compile("Put message [0-9]+ into 'work'"))
    expect(page.get_by_role("row").filter(has_text="the console")).to_be_visible()
    assert [m.priority for m in client.browse("work")] == [9]
    visitor.press("Take")
    visitor.agree("Take")
    visitor.hears("Took message")
    expect(page.get_by_role("dialog")).to_contain_text('"from": "the console"')
    assert list(client.browse("work")) == []
    assert "127.0.0.1" in logged(node, "put")[0]
    assert "127.0.0.1" in logged(node, "take")[0]


def test_nothing_happens_before_it_is_confirmed(visitor: Visitor, client: Client) -> None:
    """Cancel leaves everything as it was."""
    client.create_queue("kept")
    client.put("kept", "stays")
    page = visitor.open("queue?name=kept")
    visitor.press("Purge")
    visitor.agree("Cancel")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert len(list(client.browse("kept"))) == 1


def test_messages_are_moved_removed_and_purged(visitor: Visitor, node: Broker, client: Client) -> None:
    """Chosen messages go to another queue or away; a purge empties the queue; a target must exist."""
    client.create_queue("from here")
    client.create_queue("to there")
    for n in range(4):
        client.put("from here", f"message {n}")
    page = visitor.open("queue?name=from%20here")
    for button in ("Move", "Remove"):  # nothing is chosen yet
        expect(page.get_by_role("button", name=button, exact=True)).to_be_disabled()
    choose = page.locator(".paged tbody tr").filter(has_text="message 1").get_by_role("checkbox")
    choose.click()
    visitor.press("Move")
    visitor.fill("To the queue", "nowhere")
    visitor.agree("Move")
    visitor.hears("there is no queue 'nowhere'")
    visitor.fill("To the queue", "to there")
    visitor.agree("Move")
    visitor.hears("Moved 1 message to 'to there'")
    assert [m.body for m in client.browse("to there")] == [b"message 1"]
    page.locator(".paged tbody tr").filter(has_text="message 2").get_by_role("checkbox").click()
    visitor.press("Remove")
    visitor.agree("Remove")
    visitor.hears("Removed 1 message.")
    page.get_by_role("button", name=re.compile("^[0-9]+$")).first.click()
    visitor.agree("Remove")
    page.get_by_role("alertdialog").get_by_role("button", name="Remove").click()
    expect(page.locator(".paged tbody tr")).to_have_count(1)
    visitor.press("Purge")
    visitor.agree("Purge")
    visitor.hears("Removed 1 message; the queue is empty.")
    assert list(client.browse("from here")) == []
    assert [len(logged(node, what)) for what in ("move", "remove", "purge queue")] == [1, 2, 1]


def test_a_queue_is_made(visitor: Visitor, client: Client) -> None:
    """A new queue is there at once; a name that is taken is said."""
    page = visitor.open("queues")
    for said in ("Made the queue 'brand new'", "there is a queue 'brand new' already"):
        visitor.press("New queue")
        visitor.fill("Name", "brand new")
        visitor.agree("Make it")
        visitor.hears(said)
    page.keyboard.press("Escape")
    assert "brand new" in {queue.name for queue in client.queues()}


def test_messages_are_published_and_published_again(visitor: Visitor, node: Broker, client: Client) -> None:
    """A topic gets a message with key and headers; a copy goes to another topic; a purge hides all."""
    page = visitor.open("topics")
    visitor.press("Publish")
    visitor.fill("Topic", "made here")
    visitor.fill("Body", "first words")
    visitor.fill("Key", "k")
    visitor.fill("Headers", "colour blue")
    visitor.agree("Publish")
    visitor.hears("write a header as name: value")
    visitor.fill("Headers", "colour: blue")
    visitor.agree("Publish")
    visitor.hears("Published to 'made here': partition 1, offset 0.")
    page = visitor.open("topic?name=made%20here")
    visitor.press("Publish")
    visitor.fill("Body", "second words")
    visitor.agree("Publish")
    visitor.hears("offset 1")
    visitor.alone()
    page.get_by_role("button", name="0", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("blue")
    visitor.agree("Publish again")
    visitor.fill("To the topic", "copies")
    visitor.agree("Publish")
    visitor.hears("Published again to 'copies'")
    copy = client.fetch("copies", 1, 0)[0]
    assert (copy.body, copy.key, copy.headers) == (b"first words", "k", {"colour": "blue"})
    visitor.press("Purge")
    visitor.agree("Purge")
    visitor.hears("2 messages of 'made here' can be read no more.")
    assert not client.fetch("made here", 1, 0)
    assert [len(logged(node, what)) for what in ("publish", "republish", "purge topic")] == [2, 1, 1]


def test_a_subscription_goes_where_it_is_sent(visitor: Visitor, node: Broker, client: Client) -> None:
    """To the end, to an offset, to a time, to the beginning; and away."""
    for n in range(10):
        client.publish("tracks", str(n))
    client.subscribe("tracks", "follower", start="earliest")
    page = visitor.open("subscription?topic=tracks&name=follower")
    behind = page.locator(".card", has_text="Lag").first.locator(".value")
    expect(behind).to_have_text("10")

    def seek(where: str) -> None:
        visitor.press("Seek")
        page.get_by_role("radio", name=where).click()
        for field, needs_it in (("Time, in UTC", "A time"), ("Offset", "An offset of one partition")):
            shown = page.get_by_role("dialog").get_by_label(field, exact=True)
            expect(shown).to_be_visible(visible=where == needs_it)

    seek("The end: skip everything")
    visitor.agree("Seek")
    expect(behind).to_have_text("0")
    seek("An offset of one partition")
    page.get_by_role("spinbutton", name="Offset").fill("4")
    visitor.agree("Seek")
    expect(behind).to_have_text("6")
    seek("A time")
    visitor.fill("Time, in UTC", "soon")
    visitor.agree("Seek")
    visitor.hears("write a time as")
    visitor.fill("Time, in UTC", "2020-01-01 00:00")
    visitor.agree("Seek")
    expect(behind).to_have_text("10")
    seek("The end: skip everything")
    visitor.agree("Seek")
    expect(behind).to_have_text("0")
    visitor.press("Replay")
    visitor.agree("Replay")
    expect(behind).to_have_text("10")
    visitor.press("Remove")
    visitor.agree("Remove")
    expect(page.locator("h1")).to_have_text("Subscriptions")
    assert client.subscriptions(topic="tracks") == []
    assert (len(logged(node, "seek")), len(logged(node, "remove subscription"))) == (5, 1)


@pytest.fixture
def dead_letter(ports: dict[str, int]) -> Iterator[str]:
    """A message that its only reader refused."""
    stomp = Connection12([("127.0.0.1", ports["stomp"])])
    stomp.connect(wait=True)

    class Refuses:
        def on_message(self, frame: object) -> None:
            stomp.nack(frame.headers["ack"])  # type: ignore[attr-defined]

    stomp.set_listener("", Refuses())
    stomp.subscribe("/queue/tasks", "1", ack="client-individual")
    stomp.send("/queue/tasks", "impossible")
    yield "dead/tasks"
    if stomp.is_connected():
        stomp.disconnect()


def test_dead_letters_are_moved_back(visitor: Visitor, dead_letter: str) -> None:
    """A message that failed too often is among the dead letters, and goes back to its queue when told to."""
    page = visitor.open("subscriptions")
    letters = page.get_by_role("link", name=dead_letter)
    expect(letters).to_be_visible()
    letters.click()
    expect(page.locator("h1")).to_have_text(dead_letter)
    page.wait_for_function("window.did_handshake")
    visitor.press("Retry failed")
    visitor.agree("Retry")
    visitor.hears("the next attempt is now")
    page.locator(".paged tbody tr").first.get_by_role("checkbox").click()
    visitor.press("Move back")
    visitor.agree("Move back")
    visitor.hears("Moved 1 message back")


def test_a_client_is_disconnected(visitor: Visitor, node: Broker) -> None:
    """A chosen connection is closed, and its owner notices."""
    with node.client(name="victim") as victim:
        victim.ping()
        page = visitor.open("clients")
        row = page.locator(".paged tbody tr").filter(has_text="native").filter(has_text="victim")
        row.get_by_role("checkbox").click()
        connection = row.locator("td").nth(1).inner_text()
        visitor.press("Disconnect")
        visitor.agree("Disconnect")
        visitor.hears(f"Connection {connection}")
        expect(page.locator(".paged tbody tr").filter(has_text=connection)).to_have_count(0)
    assert f"connection={connection}" in logged(node, "disconnect")[0]


def test_inactive_actors_can_be_seen_alone(visitor: Visitor, node: Broker) -> None:
    """Producers, consumers and brokers that have been silent for too long are marked, and found."""
    execute(node.dsn, "insert into nuncius.activity values ('producer', 4711, now() - interval '30 minutes')")
    page = visitor.open("clients")
    expect(page.get_by_role("row", name="4711")).to_contain_text("inactive")
    expect(page.get_by_role("row", name="broker 1")).to_be_visible()
    page.get_by_role("switch", name="Inactive only").click()
    expect(page.get_by_role("row", name="broker 1")).to_have_count(0)
    expect(page.get_by_role("row", name="4711")).to_be_visible()


def test_consumers_are_shown(visitor: Visitor, client: Client, ports: dict[str, int]) -> None:
    """A queue shows its consumers while they are connected, and so does a subscription."""
    client.create_queue("served")
    stomp = Connection12([("127.0.0.1", ports["stomp"])])
    stomp.connect(wait=True)
    stomp.subscribe("/queue/served", "1", receipt="queue")
    stomp.subscribe("/topic/heard", "2", receipt="topic")
    page = visitor.open("queue?name=served")
    figure = page.locator(".card", has_text="Consumers").first.locator(".value")
    expect(figure).to_have_text("1")
    page = visitor.open("subscriptions?search=heard")
    row = page.locator(".paged").first.locator("tbody tr")
    expect(row.locator("td").nth(6)).to_have_text("1")
    stomp.disconnect()
    page = visitor.open("queue?name=served")
    expect(figure).to_have_text("0")


def test_runs_and_their_reports_are_opened(visitor: Visitor, node: Broker, tmp_path: Path) -> None:
    """A run shows what it did; its report opens as a page that can do nothing."""
    report = tmp_path / "evaluation.html"
    report.write_text("<h2>all good</h2><script>document.title = 'broken'</script>")
    summary = json.dumps({"report": str(report), "lag": 17})
    execute(
        node.dsn,
        "insert into nuncius.pipeline_runs (job_name, settings, state, finished_at, rows_read, summary)"
        f""" values ('evaluate', '{{"in": "traces"}}', 'done', now(), 1234, '{summary}')""",
    )
    page = visitor.open("pipelines")
    expect(page.get_by_role("row", name="evaluate").first).to_contain_text("17")
    page.get_by_role("button", name=re.compile("^[0-9]+$")).first.click()
    expect(page.get_by_role("dialog")).to_contain_text("traces")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open its report").click()
    expect(opened.value.locator("h2")).to_have_text("all good")
    assert opened.value.title() != "broken"
    opened.value.close()
    response = page.request.get(visitor.base + "report?run=999999")
    assert (response.status, "no report" in response.text()) == (404, True)


def test_the_store_says_who_holds_it_up(visitor: Visitor, node: Broker) -> None:
    """A transaction that stays open is shown with who holds it."""

    async def hold() -> Connection:
        connection = await asyncpg.connect(node.dsn, server_settings={"application_name": "a sleeper"})
        await connection.execute("begin; select 1 from nuncius.topics")
        return connection

    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:
        connection = thread.submit(loop.run_until_complete, hold()).result()
        try:
            page = visitor.open("store")
            expect(page.get_by_role("row").filter(has_text="a sleeper")).to_contain_text(
                "idle in transaction"
            )
        finally:
            thread.submit(loop.run_until_complete, connection.close()).result()
    loop.close()


def test_a_ring_is_drawn_as_one(visitor: Visitor, node: Broker) -> None:
    """Each place has its arc and its node's name, and its share of the circle; until when leases may be out
    is said."""
    places = [[2**30, "127.0.0.1:9009"], [2**31, "127.0.0.1:9010"], [3 * 2**30, "127.0.0.1:9009"]]
    ring = json.dumps({"version": 3, "places": places})
    execute(
        node.dsn,
        f"insert into nuncius.ring_notes values ('ring', '{ring}'), ('leases until', '4102444800.0')"
        " on conflict (name) do update set note = excluded.note",
    )
    page = visitor.open("cluster")
    expect(page.locator("svg.ring path")).to_have_count(3)
    expect(page.locator("svg.ring text", has_text="127.0.0.1:9010")).to_be_visible()
    expect(page.get_by_role("row", name="127.0.0.1:9010")).to_contain_text("25.0%")
    expect(page.get_by_text("Version 3 of the ring")).to_be_visible()
    expect(page.get_by_text("until 2100-01-01")).to_be_visible()
    expect(page.get_by_role("row", name="none")).to_be_visible()


def test_nodes_that_are_gone_are_removed(visitor: Visitor, node: Broker) -> None:
    """One that is silent is no longer listed; one that is alive stays, and that is said."""
    execute(
        node.dsn,
        "insert into nuncius.nodes (host, port, roles, last_heard)"
        " values ('127.0.0.1', 1, '{writer}', now() - interval '1 minute')",
    )
    page = visitor.open("cluster")
    gone = page.get_by_role("row", name="unreachable")
    expect(gone).to_have_count(1)
    page.get_by_role("checkbox").first.click()
    expect(page.get_by_text("2 nodes selected")).to_be_visible()
    visitor.press("Remove")
    visitor.agree("Remove")
    visitor.hears("Removed 1 node. Kept 1: alive")
    expect(gone).to_have_count(0)
    expect(page.get_by_role("row", name="alive")).to_have_count(1)
    assert "127.0.0.1" in logged(node, "remove nodes")[0]
