"""The cluster: its nodes with their roles, the placement of partitions, and the ring."""

from datetime import UTC, datetime
from typing import Any

from fastapi import Request
from nicegui import ui

from nuncius.broker.observe.facts_cluster import AssignedPartition, NodeFacts, RingFacts, RingPlace
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.console.context import Console
from nuncius.console.leases import in_words, leases_until
from nuncius.console.nodes import RING, address
from nuncius.console.parts.chosen import Chosen
from nuncius.console.parts.doing import say, sure
from nuncius.console.parts.frame import PageFrame, frame
from nuncius.console.parts.ring import RingDrawing, places_of, summary
from nuncius.console.parts.table import Column, Paged, Row, cut
from nuncius.console.parts.words import age, ago, number, plural, size

NODES = (
    Column("node", "Node"),
    Column("state_name", "State", kind="state"),
    Column("roles", "Roles"),
    Column("broker", "Broker", number=True, wide=True),
    Column("partitions", "Partitions", number=True, wide=True),
    Column("store", "Store", wide=True),
    Column("started", "Uptime", number=True, wide=True),
    Column("heard", "Last heartbeat", number=True),
)
PLACEMENT = (
    Column("topic", "Topic"),
    Column("partition", "Partition", number=True),
    Column("broker", "Broker", number=True),
    Column("store", "Store", number=True),
)
PLACES = (
    Column("node", "Node"),
    Column("place", "Place", number=True),
    Column("share", "Share of the ring", number=True),
)
HOT = (
    Column("node", "Node"),
    Column("leases", "Keys with a lease", number=True),
    Column("cached", "Kept of others", number=True, wide=True),
    Column("keys", "Hot keys"),
)
MOST_PLACED = 1000
SHOWN_KEYS = 20


def register(console: Console) -> None:
    @ui.page("/cluster")
    async def cluster(request: Request) -> None:
        with frame(console, request, "Cluster", "cluster") as made:
            page = ClusterPage(made)
            page.build()
            await made.live(page.refresh)


class ClusterPage:
    def __init__(self, made: PageFrame) -> None:
        self._frame = made
        self._console = made.console
        self._ring: RingFacts | None = None
        self._seen: list[dict[str, Any]] = []

    def build(self) -> None:
        may_change = self._frame.may_change
        chosen = Chosen("node")
        self._members = Paged(
            "Nodes",
            NODES,
            self._nodes,
            empty="No node has entered yet.",
            on_choice=chosen.show if may_change else None,
        )
        self._tables = [
            self._members,
            Paged(
                "Placement",
                PLACEMENT,
                self._placement,
                empty="Every partition is served by the node that is asked.",
            ),
            Paged("Places on the ring", PLACES, self._places, empty="This store's node is alone."),
            Paged("Leases and hot keys", HOT, self._hot, empty="No node with a Tribbler door has answered."),
        ]
        with ui.element("div").classes("card"):
            self._members.build()
            if may_change:
                chosen.build()
                chosen.button("Remove", "delete", self._remove, "negative")
        with ui.element("div").classes("two"):
            with ui.element("div").classes("card"):
                ui.label("Ring").classes("section")
                self._drawing = RingDrawing()
                self._note = ui.label().classes("note")
            with ui.element("div").classes("card"):
                self._tables[2].build()
                self._tables[3].build()
        with ui.element("div").classes("card"):
            self._tables[1].build()

    async def refresh(self) -> None:
        self._ring = ring = await self._console.facts.cluster.ring()
        self._seen = [answer.said for answer in await self._console.nodes.ask(RING)]
        if ring is None:
            places = places_of(self._seen[0]["places"]) if self._seen else ()
            inside = summary(*await self._console.facts.cluster.keys())
            self._drawing.show(places or (RingPlace(0, "this store's node", 1.0),), inside)
            self._note.set_text("This store's node is alone on its ring: it has all keys.")
        else:
            self._drawing.show(ring.places, summary(ring.keys, ring.items))
            leases = in_words(await leases_until(self._console.broker), datetime.now(UTC))
            self._note.set_text(f"Version {ring.version} of the ring; keys of this store. {leases}")
        for table in self._tables:
            await table.refresh()

    async def _nodes(self, wish: Wish) -> Page[Row]:
        found = await self._console.facts.cluster.nodes()
        return cut([node_row(each) for each in found], wish)

    async def _remove(self) -> None:
        keys = self._members.selected
        question = (
            f"Remove {plural(len(keys), 'node')} from this list? One that is alive, or comes back, is in it."
        )
        if await sure(question, "Remove"):
            await say(self._console.changes.forget_nodes(self._frame.visit.who, keys))
            self._members.unselect()
            await self.refresh()

    async def _placement(self, wish: Wish) -> Page[Row]:
        found = await self._console.facts.cluster.placement(MOST_PLACED)
        return cut([placed_row(each) for each in found], wish)

    async def _places(self, wish: Wish) -> Page[Row]:
        places = () if self._ring is None else self._ring.places
        rows = [
            {"key": each.place, "node": each.node, "place": str(each.place), "share": f"{each.share:.1%}"}
            for each in places
        ]
        return cut(rows, wish)

    async def _hot(self, wish: Wish) -> Page[Row]:
        return cut([hot_row(each) for each in self._seen], wish)


def hot_row(said: dict[str, Any]) -> Row:
    keys = ", ".join(said["hot_keys"][:SHOWN_KEYS])
    return {
        "key": said["node"],
        "node": said["node"],
        "leases": number(said["leases"]),
        "cached": size(said["cached_bytes"]),
        "keys": keys or "none",
    }


def node_row(facts: NodeFacts) -> Row:
    return {
        "key": facts.node_id,
        "node": address(facts),
        "state": facts.state,
        "state_name": facts.state,
        "roles": ", ".join(facts.roles),
        "broker": number(facts.broker_id),
        "partitions": number(facts.partitions),
        "store": "shared" if facts.store_id == 1 else f"store {facts.store_id}",
        "started": age(facts.started_at) if facts.is_alive else "",
        "heard": ago(facts.last_heard),
    }


def placed_row(facts: AssignedPartition) -> Row:
    return {
        "key": f"{facts.topic} {facts.partition}",
        "topic": facts.topic,
        "partition": facts.partition,
        "broker": number(facts.broker_id),
        "store": facts.store_id,
    }
