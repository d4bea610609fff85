"""Queues do what a plain list does, through whichever of several nodes one looks at them."""

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker.acknowledging import lease
from broker.inside import put
from models.world import SETTINGS, World, world
from nuncius.broker import Broker, future
from nuncius.broker.errors import NoSuchQueue
from nuncius.broker.limits import Limits
from nuncius.broker.model import Letter, Message, Publisher
from racing import until
from store.queue_sql import Ask, take_many

MAX_ATTEMPTS = 3

few = st.integers(0, 2)  # senders, receivers, contexts; 0 is nobody and none
which = st.integers(0, 1)
letters = st.lists(
    st.builds(
        Letter,
        body=st.binary(max_size=3),
        priority=st.sampled_from([1, 5, 6, 10]),
        sender=few,
        receiver=few,
        context=few,
        headers=st.sampled_from([None, '{"a": "b"}']),
    ),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class Stored:
    number: int
    letter: Letter
    attempts: int = 0
    origin: int | None = None  # if it is another than the number


@dataclass(frozen=True)
class InHand:
    """A message that a consumer has not acknowledged, or that waits for its next attempt."""

    q: int
    stored: Stored


class PlainQueue:
    """The model: messages in order of arrival."""

    def __init__(self) -> None:
        self.messages: list[Stored] = []

    def take(self, receiver: int, sender: int, context: int, mode: int, limit: int) -> list[Stored]:
        if context:
            fitting = [
                m for m in self.messages if m.letter.context == context and m.letter.receiver == receiver
            ]
        else:
            fitting = [
                m
                for m in self.messages
                if m.letter.receiver in (0, receiver) and sender in (0, m.letter.sender)
            ]
        if mode == 1:
            fitting.sort(key=lambda m: -m.letter.priority)
        taken = fitting[:limit]
        self.messages = [m for m in self.messages if m not in taken]
        return taken


class QueueMachine(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[tuple[str, int], int] = {}
        self.in_hand: list[InHand] = []
        self.waiting: list[InHand] = []
        self.dead = [0, 0]

    @initialize()
    def begin(self) -> None:
        self.names = [self.world.name("queue") for _ in range(2)]
        self.ids = [self.world.run(self.world.brokers[0].queues.create(name)).queue_id for name in self.names]
        self.model = [PlainQueue(), PlainQueue()]
        self.publisher_names = [self.world.name("publisher") for _ in range(2)]

    def node(self, n: int) -> Broker:
        return self.world.brokers[n % len(self.world.brokers)]

    def publisher(self, n: int) -> Publisher:
        return self.world.run(self.world.brokers[0].publishers.find(self.publisher_names[n], lasting=True))

    def store(self, q: int, put_letters: list[Letter], ids: list[int]) -> None:
        assert len(ids) == len(put_letters)
        before = max((m.number for m in self.model[q].messages), default=0)
        for number, letter in zip(ids, put_letters, strict=True):
            assert number > before
            before = number
            self.model[q].messages.append(Stored(number, letter))

    @rule(n=few, q=which, several=letters)
    def put(self, n: int, q: int, several: list[Letter]) -> None:
        stored = self.world.run(put(self.node(n), self.ids[q], *several))
        assert stored.skipped == 0
        self.store(q, several, list(stored.ids))

    @rule(n=few, q=which, p=which, several=letters, back=st.integers(0, 6))
    def put_counted(self, n: int, q: int, p: int, several: list[Letter], back: int) -> None:
        last = self.counts.get((self.publisher_names[p], q), 0)
        count = max(1, last + 1 - back)
        known = min(len(several), last - count + 1)
        stored = self.world.run(
            put(self.node(n), self.ids[q], *several, publisher=self.publisher(p), count=count)
        )
        assert stored.skipped == known
        self.counts[self.publisher_names[p], q] = max(last, count + len(several) - 1)
        self.store(q, several[known:], list(stored.ids))

    @rule(n=few, several=letters, missing=st.booleans())
    def put_into_both(self, n: int, several: list[Letter], missing: bool) -> None:
        letter = several[0]
        ids = [*self.ids, 2**30] if missing else self.ids
        try:
            stored = self.world.run(self.node(n).queues.put_into_all(ids, letter))
        except NoSuchQueue:
            assert missing
            return
        assert not missing
        for q in (0, 1):
            self.store(q, [letter], [stored.ids[q]])

    @rule(
        n=few,
        q=which,
        receiver=few,
        sender=few,
        context=few,
        mode=st.sampled_from([1, 2]),
        limit=st.integers(1, 5),
    )
    def take(self, n: int, q: int, receiver: int, sender: int, context: int, mode: int, limit: int) -> None:
        taken = self.world.run(
            self.node(n).queues.take(
                self.ids[q], receiver, sender=sender, context=context, mode=mode, limit=limit
            )
        )
        expected = self.model[q].take(receiver, sender, context, mode, limit)
        self.compare(taken, expected)

    def compare(self, taken: list[Message], expected: list[Stored]) -> None:
        assert [m.message_id for m in taken] == [m.number for m in expected]
        for message, stored in zip(taken, expected, strict=True):
            letter = stored.letter
            assert (message.body, message.priority) == (letter.body, letter.priority)
            assert (message.sender_id, message.receiver_id) == (letter.sender, letter.receiver)
            assert (message.context, message.headers) == (letter.context, letter.headers)

    @rule(n=few, q=which, receiver=few, limit=st.integers(1, 4))
    def lease(self, n: int, q: int, receiver: int, limit: int) -> None:
        leased = self.world.run(lease(self.node(n), self.ids[q], receiver=receiver, limit=limit))
        expected = self.model[q].take(receiver, 0, 0, 1, limit)
        self.compare([one.message for one in leased], expected)
        assert [one.attempts for one in leased] == [m.attempts for m in expected]
        assert [one.origin for one in leased] == [m.origin or m.number for m in expected]
        self.in_hand += [InHand(q, m) for m in expected]

    def draw(self, data: st.DataObject) -> list[InHand]:
        """Some of what is in hand is not any more."""
        some = data.draw(st.lists(st.sampled_from(self.in_hand), unique=True)) if self.in_hand else []
        self.in_hand = [one for one in self.in_hand if one not in some]
        return some

    @rule(n=few, data=st.data())
    def settle(self, n: int, data: st.DataObject) -> None:
        ids = [one.stored.number for one in self.draw(data)]
        self.world.run(self.node(n).leases.settle(ids))

    @rule(n=few, data=st.data())
    def give_up(self, n: int, data: st.DataObject) -> None:
        some = self.draw(data)
        self.world.run(self.node(n).leases.release([one.stored.number for one in some], reason=None))
        self.come_back(some, counted=False)

    @rule(n=few, data=st.data())
    def fail(self, n: int, data: st.DataObject) -> None:
        some = self.draw(data)
        self.world.run(self.node(n).leases.release([one.stored.number for one in some], reason="no"))
        for one in some:
            if one.stored.attempts + 1 < MAX_ATTEMPTS:
                self.waiting.append(one)
            else:
                self.dead[one.q] += 1

    @rule(n=few)
    def time_passes(self, n: int) -> None:
        async def work() -> None:
            await self.world.sql.execute("update nuncius.leases set due_at = now() where holder = 0")

            async def over() -> bool:
                await self.node(n).leases.return_due()
                return not await self.world.sql.fetchval(
                    "select count(*) from nuncius.leases where holder = 0"
                )

            await until(over)

        self.world.run(work())
        some, self.waiting = self.waiting, []
        self.come_back(some, counted=True)

    def come_back(self, some: list[InHand], *, counted: bool) -> None:
        """They have new ids, behind everything, in the order of the old ones, and know their first."""
        for q in (0, 1):
            mine = sorted((one.stored for one in some if one.q == q), key=lambda m: m.number)
            before = len(self.model[q].messages)
            seen = self.world.run(self.node(q).queues.browse(self.ids[q], limit=1000))[before:]
            back = [
                Stored(new.message_id, old.letter, old.attempts + counted, old.origin or old.number)
                for new, old in zip(seen, mine, strict=True)
            ]
            self.compare(seen, back)
            self.model[q].messages += back

    @rule(n=few, q=which, several=letters, data=st.data(), missing=st.booleans())
    def transact(self, n: int, q: int, several: list[Letter], data: st.DataObject, missing: bool) -> None:
        some = self.draw(data)

        async def work() -> None:
            transaction = self.node(n).transaction()
            for letter in several:
                transaction.put(self.ids[q], letter)
            transaction.settle([one.stored.number for one in some])
            if missing:
                transaction.put(2**30, several[0])
            committed, done = future.new()
            transaction.commit_soon(done)
            await committed

        try:
            self.world.run(work())
        except NoSuchQueue:
            assert missing
            self.in_hand += some
            return
        seen = self.world.run(self.node(n).queues.browse(self.ids[q], limit=1000))
        self.store(q, several, [m.message_id for m in seen[len(self.model[q].messages) :]])

    @rule(q=which, receiver=few, limit=st.integers(1, 3), commit=st.booleans())
    def an_application_takes(self, q: int, receiver: int, limit: int, commit: bool) -> None:
        async def work() -> list[int]:
            transaction = self.world.sql.transaction()
            await transaction.start()
            rows = await take_many(self.world.sql, Ask(self.ids[q], receiver, limit=limit))
            await (transaction.commit() if commit else transaction.rollback())
            return [row["message_id"] for row in rows]

        taken = self.world.run(work())
        before = list(self.model[q].messages)
        expected = self.model[q].take(receiver, 0, 0, 1, limit)
        assert taken == [m.number for m in expected]
        if not commit:
            self.model[q].messages = before

    @rule(n=few, q=which)
    def purge(self, n: int, q: int) -> None:
        waiting = [one for one in self.waiting if one.q == q]
        purged = self.world.run(self.node(n).queues.purge(self.ids[q]))
        assert purged == len(self.model[q].messages) + len(waiting)
        self.model[q].messages = []
        self.waiting = [one for one in self.waiting if one.q != q]

    @rule(n=few, q=which)
    def delete_and_make_again(self, n: int, q: int) -> None:
        self.world.run(self.node(n).queues.delete(self.ids[q]))
        self.ids[q] = self.world.run(self.node(n + 1).queues.create(self.names[q])).queue_id
        self.model[q].messages = []
        self.waiting = [one for one in self.waiting if one.q != q]
        self.in_hand = [one for one in self.in_hand if one.q != q]
        for name in self.publisher_names:
            self.counts.pop((name, q), None)

    @rule(n=few, q=which)
    def browse(self, n: int, q: int) -> None:
        seen = self.world.run(self.node(n).queues.browse(self.ids[q], limit=1000))
        assert [m.message_id for m in seen] == [m.number for m in self.model[q].messages]

    @invariant()
    def depths_agree(self) -> None:
        infos = self.world.run(self.world.brokers[-1].queues.info(self.names))
        depths = {info.name: info.depth for info in infos}
        assert [depths[name] for name in self.names] == [len(m.messages) for m in self.model]

    @invariant()
    def nothing_else_is_in_hand(self) -> None:
        rows = self.world.run(
            self.world.sql.fetch(
                "select queue_id, holder = 0, attempts from nuncius.leases where queue_id = any ($1)"
                " order by 1, 2, 3",
                self.ids,
            )
        )
        expected = [(self.ids[one.q], False, one.stored.attempts + 1) for one in self.in_hand]
        expected += [(self.ids[one.q], True, one.stored.attempts + 1) for one in self.waiting]
        assert [tuple(row) for row in rows] == sorted(expected)

    @invariant()
    def dead_letters_agree(self) -> None:
        infos = self.world.run(self.world.brokers[0].queues.info([f"dead/{name}" for name in self.names]))
        depths = {info.name: info.depth for info in infos}
        assert [depths.get(f"dead/{name}", 0) for name in self.names] == self.dead


def test_queues_against_a_model(dsn: str) -> None:
    """Whatever is put, taken, leased, settled, released, purged and deleted, at whichever of three nodes: a
    plain list agrees."""
    with world(dsn, 3, Limits(retry_delay=3600, max_attempts=MAX_ATTEMPTS)) as around:
        QueueMachine.world = around
        run_state_machine_as_test(QueueMachine, settings=SETTINGS)
