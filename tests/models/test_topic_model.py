"""Topics do what plain lists do, through whichever of several nodes one looks at them."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker.test_subscriptions import confirm
from models.world import SETTINGS, World, world
from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput, NoSuchSubscription
from nuncius.broker.model import Placed, Publisher, Retention
from nuncius.store.calls.publishing import partition_of

few = st.integers(0, 2)
KEYS = ["a", "b", "c", None]
SUBSCRIBERS = ["sue", "tom"]


class PlainTopic:
    """The model: a list of bodies a partition, how much of it is gone, and where subscribers stand."""

    def __init__(self, partitions: int) -> None:
        self.partitions: list[list[bytes]] = [[] for _ in range(partitions)]
        self.first = [0] * partitions
        self.counts: dict[str, int] = {}
        self.places: dict[str, list[int]] = {}

    def ends(self) -> list[int]:
        return [len(entries) for entries in self.partitions]

    def place(self, subscriber: str) -> list[int]:
        return [max(*pair) for pair in zip(self.places[subscriber], self.first, strict=True)]


class TopicMachine(RuleBasedStateMachine):
    world: World

    @initialize(partitions=st.integers(1, 3))
    def begin(self, partitions: int) -> None:
        self.name = self.world.name("topic")
        self.publisher_names = [self.world.name("publisher") for _ in range(2)]
        self.make(partitions)

    def make(self, partitions: int) -> None:
        self.world.run(self.world.brokers[0].topics.create(self.name, partitions))
        self.model = PlainTopic(partitions)
        self.retention = Retention()

    def node(self, n: int) -> Broker:
        return self.world.brokers[n % len(self.world.brokers)]

    def publisher(self, n: int) -> Publisher:
        return self.world.run(self.world.brokers[0].publishers.find(self.publisher_names[n], lasting=True))

    def check(self, placed: Placed, bodies: list[bytes], partitions: list[int | None], known: int) -> None:
        """The entries went where they belong; None stands for a partition of the node's choice."""
        if placed.scattered is not None:
            spots = placed.scattered
        else:
            spots = [(placed.partition, -1)] * placed.skipped
            spots += [(placed.partition, placed.offset + n) for n in range(len(bodies) - placed.skipped)]
        assert len(spots) == len(bodies)
        assert placed.skipped == known
        for n, (partition, offset) in enumerate(spots):
            assert partitions[n] in (None, partition)
            if n < known:
                assert offset == -1
            else:
                entries = self.model.partitions[partition - 1]
                assert offset == len(entries)
                entries.append(bodies[n])

    @rule(
        n=few,
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5),
        chosen=st.sampled_from([None, None, 1]),
        size=st.integers(0, 30),
    )
    def publish(self, n: int, keys: list[str | None], chosen: int | None, size: int) -> None:
        bodies = [b"%d" % i + b"." * size for i in range(len(keys))]
        placed = self.world.run(self.node(n).topics.publish(self.name, bodies, keys=keys, partition=chosen))
        self.check(placed, bodies, self.wanted(keys, chosen, None), 0)

    @rule(
        n=few,
        p=st.integers(0, 1),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5),
        keyed=st.booleans(),
        back=st.integers(0, 7),
    )
    def publish_counted(self, n: int, p: int, keys: list[str | None], keyed: bool, back: int) -> None:
        name = self.publisher_names[p]
        last = self.model.counts.get(name, 0)
        count = max(1, last + 1 - back)
        known = min(len(keys), last - count + 1)
        bodies = [b"%s %d" % (name.encode(), count + i) for i in range(len(keys))]
        placed = self.world.run(
            self.node(n).topics.publish(
                self.name,
                bodies,
                keys=keys if keyed else None,
                publisher=self.publisher(p),
                count=count,
            )
        )
        self.model.counts[name] = max(last, count + len(keys) - 1)
        self.check(placed, bodies, self.wanted(keys if keyed else [None] * len(keys), None, name), known)

    def wanted(self, keys: list[str | None], chosen: int | None, publisher: str | None) -> list[int | None]:
        partitions = len(self.model.partitions)
        if chosen is not None:
            return [chosen] * len(keys)
        deciding = [publisher if key is None else key for key in keys]
        return [None if each is None else partition_of(each, partitions) for each in deciding]

    @rule(n=few, p=few, position=st.integers(-1, 20), limit=st.integers(1, 6))
    def fetch(self, n: int, p: int, position: int, limit: int) -> None:
        partition = p % len(self.model.partitions)

        async def work() -> tuple[int, list[bytes]] | None:
            topics = self.node(n).topics
            found = await topics.fetch(await topics.existing(self.name), partition + 1, position, limit)
            return None if found is None else (found.first_offset, found.bodies)

        start = max(position, self.model.first[partition])
        expected = self.model.partitions[partition][start : start + limit]
        assert self.world.run(work()) == ((start, expected) if expected else None)

    @rule(n=few, who=st.sampled_from(SUBSCRIBERS), start=st.sampled_from(["latest", "earliest"]))
    def subscribe(self, n: int, who: str, start: str) -> None:
        found = self.world.run(self.node(n).subscriptions.subscribe(self.name, who, start=start))
        assert found.created == (who not in self.model.places)
        if found.created:
            ends = self.model.ends()
            self.model.places[who] = ends if start == "latest" else [0] * len(ends)

    @rule(n=few, who=st.sampled_from(SUBSCRIBERS), p=few, position=st.integers(0, 20))
    def confirm(self, n: int, who: str, p: int, position: int) -> None:
        partition = p % len(self.model.partitions)

        async def work() -> None:
            found = await self.node(n).subscriptions.find(self.name, who)
            await confirm(self.node(n), found, position, partition + 1)

        try:
            self.world.run(work())
        except NoSuchSubscription:
            assert who not in self.model.places
        except InvalidInput:
            assert position > self.model.ends()[partition]
        else:
            places = self.model.places[who]
            assert position <= self.model.ends()[partition]
            places[partition] = max(places[partition], position)

    @rule(n=few, who=st.sampled_from(SUBSCRIBERS))
    def unsubscribe(self, n: int, who: str) -> None:
        try:
            self.world.run(self.node(n).subscriptions.unsubscribe(self.name, who))
        except NoSuchSubscription:
            assert who not in self.model.places
        else:
            del self.model.places[who]

    @rule(n=few, who=st.sampled_from(SUBSCRIBERS), limit=st.integers(1, 4))
    def read(self, n: int, who: str, limit: int) -> None:
        """A reader gets everything from its place on, each partition in order."""
        if who not in self.model.places:
            return
        place = self.model.place(who)
        expected = [entries[at:] for entries, at in zip(self.model.partitions, place, strict=True)]

        async def work() -> list[list[bytes]]:
            node = self.node(n)
            reader = await node.subscriptions.cursor(await node.subscriptions.find(self.name, who))
            found: list[list[bytes]] = [[] for _ in expected]
            while sum(map(len, found)) < sum(map(len, expected)):
                piece = await reader.next(limit)
                partition, entries = piece.partition, piece.entries
                assert len(entries.bodies) <= limit
                assert entries.first_offset == place[partition - 1] + len(found[partition - 1])
                found[partition - 1] += entries.bodies
            return found

        assert self.world.run(work()) == expected

    @rule(n=few)
    def purge(self, n: int) -> None:
        gone = sum(self.model.ends()) - sum(self.model.first)
        assert self.world.run(self.node(n).topics.purge(self.name)) == gone
        self.model.first = self.model.ends()

    @rule(
        n=few,
        retention=st.sampled_from(
            [
                Retention(),
                Retention("subscribers"),
                Retention("time", 10**6),
                Retention("size", None, 60),
                Retention("size", None, 10**6),
            ]
        ),
    )
    def set_retention(self, n: int, retention: Retention) -> None:
        self.world.run(self.node(n).topics.set_retention(self.name, retention))
        self.retention = retention

    @rule(n=few)
    def collect(self, n: int) -> None:
        self.world.run(self.node(n).duties.collect())
        model = self.model
        for p, entries in enumerate(model.partitions):
            if self.retention.mode == "subscribers":
                held = min((places[p] for places in model.places.values()), default=len(entries))
                model.first[p] = max(model.first[p], held)
            elif self.retention.mode == "size":
                most = self.retention.bytes or 0
                while sum(map(len, entries[model.first[p] :])) > most:
                    model.first[p] += 1

    @rule(n=few)
    def tidy(self, n: int) -> None:
        self.world.run(self.node(n).duties.tidy())

    @rule(n=few, partitions=st.integers(1, 3))
    def delete_and_make_again(self, n: int, partitions: int) -> None:
        self.world.run(self.node(n).topics.delete(self.name))
        self.make(partitions)

    @invariant()
    def ends_agree(self) -> None:
        (info,) = self.world.run(self.world.brokers[-1].topics.find([self.name]))
        assert [(p.first_offset, p.next_offset) for p in info.partitions] == list(
            zip(self.model.first, self.model.ends(), strict=True)
        )

    @invariant()
    def lags_agree(self) -> None:
        infos = self.world.run(self.world.brokers[0].subscriptions.list(self.name))
        assert {info.subscriber: info.lag for info in infos} == {
            who: sum(self.model.ends()) - sum(self.model.place(who)) for who in self.model.places
        }


def test_topics_against_a_model(dsn: str) -> None:
    """Whatever is published, confirmed, purged and collected, at either node: plain lists agree."""
    with world(dsn, 2) as around:
        TopicMachine.world = around
        run_state_machine_as_test(TopicMachine, settings=SETTINGS)
