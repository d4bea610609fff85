"""The combiner: while one call is in flight, collect the next; and what becomes of calls that go wrong."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fix_store import let_in
from nuncius.store.combiner.combiner import SPLIT_ROWS, Call, Combiner, Detour
from nuncius.store.driver import Connection
from nuncius.store.errors import CallFailed, OutcomeUnknown, StoreUnavailable
from nuncius.store.server import embedded
from nuncius.store.store import Store
from racing import backends, until, until_somebody_waits

LOCK = 4711


class Number(Call):
    """A call that wants 100 divided by a number."""

    def __init__(
        self,
        value: int,
        *,
        caller: object = None,
        key: object = None,
        rows: int = 1,
        size: int = 10,
        repeatable: bool = True,
    ) -> None:
        self.value = value
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        super().__init__(self.answer, caller, key, rows, size, repeatable)

    def answer(self, result: Any) -> None:
        if not self.future.done():
            if isinstance(result, Exception):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)


class Work:
    """Carries out batches on a real connection and remembers them; `gate` holds them up."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.carried_out: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.busy: set[object] = set()

    async def __call__(self, connection: Connection, calls: Sequence[Number], wait: bool) -> Sequence[Any]:
        self.batches.append([call.value for call in calls])
        await self.gate.wait()
        now = [call for call in calls if wait or call.key not in self.busy]
        if wait:
            await connection.fetchval("select count(*) from (select pg_advisory_xact_lock($1)) x", LOCK)
        rows = await connection.fetch(
            "select 100 / n as r from unnest($1::int[]) n", [call.value for call in now]
        )
        self.carried_out += [call.value for call in now]
        results = iter([row["r"] for row in rows])
        return [next(results) if call in now else Detour.BUSY for call in calls]


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    opened = Store(dsn, patience=20)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def combiner(store: Store, work: Work) -> Combiner[Number]:
    return store.combiner("test", work)


async def submit(combiner: Combiner[Number], *values: int, **options: Any) -> list[Number]:
    calls = [Number(value, **options) for value in values]
    for call in calls:
        combiner.submit(call)
    return calls


async def in_flight(work: Work, combiner: Combiner[Number]) -> Number:
    """A first call that is held up at the gate."""
    work.gate.clear()
    (first,) = await submit(combiner, 1)
    await until(lambda: work.batches)
    return first


async def results(calls: Sequence[Number]) -> list[Any]:
    async with asyncio.timeout(60):
        return await asyncio.gather(*(call.future for call in calls), return_exceptions=True)


# Batches


async def test_calls_travel_together(combiner: Combiner[Number], work: Work) -> None:
    """What is submitted while a call is in flight makes up the next batch."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, 2, 4, 5, 10)
    work.gate.set()
    assert await results([first, *calls]) == [100, 50, 25, 20, 10]
    assert work.batches == [[1], [2, 4, 5, 10]]


async def test_one_caller_at_a_time(combiner: Combiner[Number], work: Work) -> None:
    """With one caller a batch is one call; nobody waits for more to come."""
    for n in (1, 2, 4):
        assert await results(await submit(combiner, n)) == [100 // n]
    assert work.batches == [[1], [2], [4]]


def back_again(combiner: Combiner[Number], first: Number, value: int, **options: Any) -> list[Number]:
    """Whoever gets the first answer submits another call at once. It is in the list when it is made."""
    made: list[Number] = []

    def answered(result: Any) -> None:
        first.answer(result)
        made.append(Number(value, **options))
        combiner.submit(made[0])

    first.done = answered
    return made


async def test_the_next_batch_is_made_up_ahead(store: Store, work: Work) -> None:
    """When as many callers are back as are in the batch under way, the next one is made up meanwhile. What
    goes wrong in preparing it matters to nobody before its turn."""
    told: list[list[int]] = []

    def ahead(calls: Sequence[Number]) -> None:
        told.append([call.value for call in calls])
        raise ValueError("a fault")

    combiner = store.combiner("test", work, ahead=ahead)
    first = await in_flight(work, combiner)
    (second,) = await submit(combiner, 2)
    third = back_again(combiner, first, 4)
    work.gate.set()
    assert await results([first, second]) == [100, 50]
    assert await results(third) == [25]
    assert told == [[4]]
    assert work.batches == [[1], [2], [4]]


async def test_callers_make_up_two_halves(combiner: Combiner[Number], work: Work) -> None:
    """A batch is at most half of all who wait or are about to come back, so that the other half can be
    prepared and answered while it is stored. A few are not halved."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, *range(2, 101))
    work.gate.set()
    await results([first, *calls])
    assert [len(batch) for batch in work.batches] == [1, 50, 49]
    work.batches.clear()
    await results(await submit(combiner, *range(1, SPLIT_ROWS + 1)))
    assert [len(batch) for batch in work.batches] == [SPLIT_ROWS]


async def test_batches_are_bounded_by_rows(store: Store, work: Work) -> None:
    """A batch has no more rows than allowed; what does not fit comes with the next."""
    combiner: Combiner[Number] = Combiner(work, lambda wait: store.lane("test", wait=wait), max_rows=3)
    first = await in_flight(work, combiner)
    calls = await submit(combiner, *range(2, 10))
    work.gate.set()
    await results([first, *calls])
    assert work.batches == [[1], [2, 3, 4], [5, 6, 7], [8, 9]]
    await combiner.close()


async def test_batches_are_bounded_by_bytes(store: Store, work: Work) -> None:
    """A batch is full when it has the bytes; a call that is larger goes all the same, alone."""
    combiner: Combiner[Number] = Combiner(work, lambda wait: store.lane("test", wait=wait), max_bytes=100)
    first = await in_flight(work, combiner)
    large = await submit(combiner, 2, size=1000)
    small = await submit(combiner, 3, 4, 5, 6, size=50)
    work.gate.set()
    await results([first, *large, *small])
    assert work.batches == [[1], [2], [3, 4], [5, 6]]
    await combiner.close()


async def test_callers_take_turns(store: Store, work: Work) -> None:
    """Who has a little to do does not wait behind somebody with much."""
    combiner: Combiner[Number] = Combiner(work, lambda wait: store.lane("test", wait=wait), max_rows=10)
    first = await in_flight(work, combiner)
    greedy = await submit(combiner, *range(100, 200), caller="greedy")
    modest = await submit(combiner, 2, 3, caller="modest")
    work.gate.set()
    await results([first, *greedy, *modest])
    assert set(work.batches[1]) >= {2, 3}
    in_order = [n for batch in work.batches for n in batch if n >= 100]
    assert in_order == list(range(100, 200))
    await combiner.close()


async def test_draining(combiner: Combiner[Number], work: Work) -> None:
    """Draining returns when everything that was submitted is answered."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, 2, 0)
    draining = asyncio.ensure_future(combiner.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    work.gate.set()
    await draining
    assert all(call.future.done() for call in [first, *calls])
    await results(calls)


# Failures


async def test_a_failing_member_fails_alone(combiner: Combiner[Number], work: Work) -> None:
    """What PostgreSQL refuses in a batch is found, and its neighbours are carried out in order."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, 2, 4, 0, 5, 10, 20, 0, 25)
    work.gate.set()
    await first.future
    got = await results(calls)
    assert [r for r in got if isinstance(r, int)] == [50, 25, 20, 10, 5, 4]
    assert isinstance(got[2], CallFailed)
    assert isinstance(got[6], CallFailed)
    assert work.carried_out == [1, 2, 4, 5, 10, 20, 25]


async def test_what_cannot_be_sent_fails_alone(combiner: Combiner[Number], work: Work) -> None:
    """A value that the driver cannot send fails its own call, and the connection stays."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, 2, 2**40, 4)
    work.gate.set()
    await first.future
    got = await results(calls)
    assert (got[0], got[2]) == (50, 25)
    assert isinstance(got[1], CallFailed)


async def test_a_fault_is_answered(combiner: Combiner[Number], work: Work) -> None:
    """Even a fault of the program itself is an answer to those in the batch; the next one goes on."""
    faults = [RuntimeError("a fault")]
    carry_out = work.__call__

    async def faulty(connection: Connection, calls: Sequence[Number], wait: bool) -> Sequence[Any]:
        if faults:
            raise faults.pop()
        return await carry_out(connection, calls, wait)

    combiner._execute = faulty  # noqa: SLF001  (the fault is put where faults would be)
    (broken,) = await results(await submit(combiner, 2))
    assert isinstance(broken, Exception)
    assert await results(await submit(combiner, 4)) == [25]


async def test_a_caller_that_fails_on_its_answer(combiner: Combiner[Number], work: Work) -> None:
    """A caller whose callback raises does not take the others' answers away."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, 2, 4)

    def fail(_: Any) -> None:
        raise ValueError("the caller's own mistake")

    calls[0].done = fail
    work.gate.set()
    assert await results([first, calls[1]]) == [100, 25]


async def test_cancellation(combiner: Combiner[Number], work: Work) -> None:
    """A caller that does not wait any longer changes nothing for the others."""
    first = await in_flight(work, combiner)
    calls = await submit(combiner, 2, 4)
    calls[0].future.cancel()
    work.gate.set()
    assert await results([first, calls[1]]) == [100, 25]


async def test_who_counts_does_not_hold_up_answers(store: Store, work: Work) -> None:
    """When whoever observes the batches fails, everybody gets an answer all the same."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    store.observer = lambda name: fail
    combiner = store.combiner("test", work)
    first = await in_flight(work, combiner)
    second = back_again(combiner, first, 2)
    third = await submit(combiner, 4)
    work.gate.set()
    assert await results([first, *third]) == [100, 25]
    assert await results(second) == [50]


# Detours


async def test_busy_members_do_not_hold_up_others(
    combiner: Combiner[Number], work: Work, other: Connection
) -> None:
    """A key that is busy waits by itself, and later calls with that key follow it in order."""
    await other.execute("select pg_advisory_lock($1)", LOCK)
    work.busy.add("slow")
    first = await in_flight(work, combiner)
    slow = await submit(combiner, 2, key="slow")
    quick = await submit(combiner, 4, key="quick")
    work.gate.set()
    assert await results([first, *quick]) == [100, 25]
    work.busy.clear()
    slow += await submit(combiner, 5, 10, key="slow")
    assert await results(await submit(combiner, 20, key="quick")) == [5]
    assert not any(call.future.done() for call in slow)
    await other.execute("select pg_advisory_unlock($1)", LOCK)
    assert await results(slow) == [50, 20, 10]
    assert work.carried_out == [1, 4, 20, 2, 5, 10]


async def test_nobody_overtakes_a_detour_after_a_failure(
    combiner: Combiner[Number], work: Work, other: Connection
) -> None:
    """When a batch is halved because of a failing member, and a key turns out to be busy in the first half,
    its calls in the second half follow it even if it is free again by then."""
    await other.execute("select pg_advisory_lock($1)", LOCK)
    work.busy.add("slow")
    carry_out = work.__call__

    async def free_after_first_half(
        connection: Connection, calls: Sequence[Number], wait: bool
    ) -> Sequence[Any]:
        found = await carry_out(connection, calls, wait)
        if Detour.BUSY in found:
            work.busy.clear()
        return found

    combiner._execute = free_after_first_half  # noqa: SLF001  (frees the key between the halves)
    first = await in_flight(work, combiner)
    before = await submit(combiner, 2, key="slow")
    await submit(combiner, 4, key="quick")
    failing = await submit(combiner, 0, key="quick")
    after = await submit(combiner, 5, key="slow")
    work.gate.set()
    await results([first, *failing])
    await other.execute("select pg_advisory_unlock($1)", LOCK)
    assert await results(before + after) == [50, 20]
    assert [n for n in work.carried_out if n in (2, 5)] == [2, 5]


async def test_nobody_overtakes_a_detour_in_a_batch_made_up_ahead(
    store: Store, work: Work, other: Connection
) -> None:
    """A batch was made up before a key of it went on a detour: its calls follow, also if the key is free
    again by then."""
    await other.execute("select pg_advisory_lock($1)", LOCK)
    work.busy.add("slow")
    told: list[Sequence[Number]] = []

    async def free_afterwards(connection: Connection, calls: Sequence[Number], wait: bool) -> Sequence[Any]:
        found = await work(connection, calls, wait)
        if Detour.BUSY in found:
            work.busy.clear()
        return found

    combiner = store.combiner("test", free_afterwards, ahead=told.append)
    first = await in_flight(work, combiner)
    second = await submit(combiner, 2, key="slow")
    third = back_again(combiner, first, 4, key="slow")
    work.gate.set()
    assert await results([first]) == [100]
    assert await results(await submit(combiner, 5, key="quick")) == [20]
    assert [[call.value for call in calls] for calls in told] == [[4]]
    await other.execute("select pg_advisory_unlock($1)", LOCK)
    assert await results(second + third) == [50, 25]
    assert work.carried_out == [1, 5, 2, 4]


async def test_nobody_overtakes_who_has_to_go_again(combiner: Combiner[Number]) -> None:
    """A call that is outdated on its detour, too, still goes before those that came behind it meanwhile."""
    outdated = iter((True, True))
    carried_out: list[int] = []
    behind: list[Number] = []

    async def execute(_: Connection, calls: Sequence[Number], wait: bool) -> Sequence[Any]:
        if next(outdated, False):
            if wait:
                behind.extend(await submit(combiner, 5, 10, key="k"))
                await until(lambda: len(combiner._detours["k"]) == 2)  # noqa: SLF001
            return [Detour.STALE] * len(calls)
        carried_out.extend(call.value for call in calls)
        return [100 // call.value for call in calls]

    combiner._execute = execute  # noqa: SLF001
    first = await submit(combiner, 2, 4, key="k")
    assert await results(first) == [50, 25]
    assert await results(behind) == [20, 10]
    assert carried_out == [2, 4, 5, 10]


async def test_a_batch_of_which_nothing_is_left(store: Store, work: Work, other: Connection) -> None:
    """All calls of a batch are on a detour, and nobody else waits: everybody is answered once."""
    await other.execute("select pg_advisory_lock($1)", LOCK)
    work.busy.add("slow")
    combiner = store.combiner("test", work, ahead=lambda _: None)
    slow = await submit(combiner, 2, key="slow")
    await until(lambda: len(work.batches) == 2)  # the second is the detour's
    work.gate.clear()
    first = await submit(combiner, 1)
    await until(lambda: len(work.batches) == 3)
    slow += await submit(combiner, 4, key="slow")
    work.gate.set()
    assert await results(first) == [100]
    await other.execute("select pg_advisory_unlock($1)", LOCK)
    assert await results(slow) == [50, 25]
    await combiner.drain()


async def test_a_locked_table_is_waited_for(store: Store, other: Connection, observer: Connection) -> None:
    """Somebody who locks a table (to index it, or vacuum in truncating it) makes calls wait, not fail."""
    await other.execute("create table things (n int)")

    async def insert(connection: Connection, calls: Sequence[Number], _: bool) -> Sequence[Any]:
        await connection.executemany("insert into things values ($1)", [(call.value,) for call in calls])
        return [call.value for call in calls]

    combiner = store.combiner("things", insert)
    assert await results(await submit(combiner, 1)) == [1]
    await other.execute("begin")
    await other.execute("lock table things in share mode")
    calls = await submit(combiner, 2, 3, key="things")
    await until_somebody_waits(observer, "nuncius things")
    more = await submit(combiner, 4, key="things")
    await asyncio.wait([call.future for call in calls], timeout=0.1)
    await other.execute("commit")
    assert await results(calls + more) == [2, 3, 4]
    rows = await observer.fetch("select n from things")
    assert [row["n"] for row in rows] == [1, 2, 3, 4]


# Broken connections


async def test_a_killed_connection(
    combiner: Combiner[Number], work: Work, other: Connection, observer: Connection
) -> None:
    """When the connection breaks in flight, calls that may be repeated are, once; the others learn that their
    outcome is unknown."""
    await other.execute("select pg_advisory_lock($1)", LOCK)
    work.busy.add("slow")
    repeatable = await submit(combiner, 2, key="slow")
    delicate = await submit(combiner, 4, key="slow", repeatable=False)
    await until_somebody_waits(observer, "nuncius test")
    (waiting,) = await observer.fetch(
        "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        " and application_name = 'nuncius test'"
    )
    # Those that were submitted together may be in two batches: the first waits, the second follows.
    await observer.fetchval("select pg_terminate_backend($1)", waiting["pid"])
    await until(lambda: waiting_again(observer, waiting["pid"]))
    await other.execute("select pg_advisory_unlock($1)", LOCK)
    assert await results(repeatable) == [50]
    (outcome,) = await results(delicate)
    assert outcome == 25 or isinstance(outcome, OutcomeUnknown)
    assert work.carried_out.count(2) == 1


async def waiting_again(observer: Connection, before: int) -> bool:
    rows = await observer.fetch(
        "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        " and application_name = 'nuncius test'"
    )
    return any(row["pid"] != before for row in rows)


async def test_the_outcome_is_unknown(
    combiner: Combiner[Number], work: Work, other: Connection, observer: Connection
) -> None:
    """A call that must not be repeated fails with OutcomeUnknown when its connection breaks."""
    await other.execute("select pg_advisory_lock($1)", LOCK)
    work.busy.add("slow")
    delicate = await submit(combiner, 4, key="slow", repeatable=False)
    await until_somebody_waits(observer, "nuncius test")
    for pid in await backends(observer, "nuncius test"):
        await observer.fetchval("select pg_terminate_backend($1)", pid)
    (outcome,) = await results(delicate)
    assert isinstance(outcome, OutcomeUnknown)
    await other.execute("select pg_advisory_unlock($1)", LOCK)
    assert await results(await submit(combiner, 5)) == [20]


async def test_a_repeatable_call_that_cannot_be_repeated(dsn: str, work: Work, observer: Connection) -> None:
    """A call that may be repeated and was on its way when the store went away may have been carried out: when
    patience ends nobody says that nothing was stored."""
    store = Store(dsn, patience=0.1)
    await store.open()
    combiner = store.combiner("test", work)
    first = await in_flight(work, combiner)
    (pid,) = await backends(observer, "nuncius test")
    let_in(dsn, may=False)
    await observer.fetchval("select pg_terminate_backend($1)", pid)
    work.gate.set()
    (outcome,) = await results([first])
    assert isinstance(outcome, OutcomeUnknown)
    (outcome,) = await results(await submit(combiner, 2))
    assert isinstance(outcome, StoreUnavailable)
    let_in(dsn, may=True)
    await store.close()


async def test_the_server_stops_and_starts(data_dir: Path) -> None:
    """While the store is away callers wait; when it is back they are served."""
    server = await asyncio.to_thread(embedded.start, data_dir)
    store = Store(server.dsn, patience=60)
    await store.open()
    work = Work()
    combiner = store.combiner("test", work)
    assert await results(await submit(combiner, 1)) == [100]
    await asyncio.to_thread(embedded.stop, data_dir)
    calls = await submit(combiner, 2, 4)
    query = asyncio.ensure_future(store.query("select 1"))
    await asyncio.wait([calls[0].future, query], timeout=0.3)
    assert not calls[0].future.done()
    assert not query.done()
    await asyncio.to_thread(embedded.start, data_dir)
    assert await results(calls) == [50, 25]
    assert (await query)[0][0] == 1
    await store.close()


async def test_patience_ends(data_dir: Path) -> None:
    """When the store has been away for longer than the node's patience, callers are told so, later ones at
    once; and they are served again when it is back."""
    server = await asyncio.to_thread(embedded.start, data_dir)
    store = Store(server.dsn, patience=0.5)
    await store.open()
    combiner = store.combiner("test", Work())
    await results(await submit(combiner, 1))
    await asyncio.to_thread(embedded.stop, data_dir)
    (outcome,) = await results(await submit(combiner, 2))
    assert isinstance(outcome, StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await store.query("select 1")
    async with asyncio.timeout(0.3):
        (outcome,) = await results(await submit(combiner, 2))
    assert isinstance(outcome, StoreUnavailable)
    await asyncio.to_thread(embedded.start, data_dir)

    async def served() -> bool:
        return await results(await submit(combiner, 4)) == [25]

    await until(served)
    await store.close()
