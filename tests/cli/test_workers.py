"""A node with several workers answers as one, whichever of them is asked."""

import json
import re
import signal
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cli.commands import Node, connect_until_all_are_busy, node, nuncius, workers
from nuncius.client import Client

SECONDS = 60.0
ASKED = 8  # times, over new connections: few enough to be quick, enough to meet both workers


@dataclass(frozen=True, slots=True)
class Pair:
    """A node with two workers, and so many clients that both have some. Each has published a message."""

    node: Node
    clients: list[Client]

    @property
    def port(self) -> int:
        return int(self.node.ready["ports"]["http"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        return get(self.url, path)

    def whole(self, path: str) -> Any:
        """An answer in which no worker is missing: on a busy machine one may be late for once."""
        deadline = time.monotonic() + SECONDS
        while is_in_part(answer := self.get(path)):
            assert time.monotonic() < deadline, answer
        return answer

    @contextmanager
    def line(self, pid: int) -> Iterator["Line"]:
        """A connection to the worker with this process id."""
        for _ in range(100):
            line = Line(self.port)
            try:
                if line.pid == pid:
                    yield line
                    return
            finally:
                line.http.close()
        raise AssertionError(f"no connection led to {pid}")


class Line:
    """A connection to one of the workers, which stays with it."""

    def __init__(self, port: int) -> None:
        self.http = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connections = self.get("/v1/connections")["connections"]
        peer = "{}:{}".format(*self.http.sock.getsockname())
        self.pid = next(each["pid"] for each in connections if each["peer"] == peer)

    def call(self, method: str, path: str) -> tuple[int, bytes]:
        self.http.request(method, path)
        answer = self.http.getresponse()
        return answer.status, answer.read()

    def get(self, path: str) -> Any:
        return json.loads(self.call("GET", path)[1])


@contextmanager
def two_workers(*arguments: str) -> Iterator[Pair]:
    with node("--http-port=0", "--workers=2", *arguments) as started:
        clients = connect_until_all_are_busy(started, 2)
        for client in clients:
            client.publish("news", "hello")
        yield Pair(started, clients)
        for client in clients:
            client.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """For tests that only look."""
    directory = tmp_path_factory.mktemp("workers", numbered=True)
    with two_workers("--data-dir", str(directory / "data")) as started:
        yield started
        started.node.stop()


@pytest.fixture
def fresh(dsn: str) -> Iterator[Pair]:
    """For tests after which nothing is as it was."""
    with two_workers("--store", dsn) as started:
        yield started


def get(url: str, path: str) -> Any:
    """Over a new connection, so that any worker may answer."""
    response = httpx.get(url + path, trust_env=False, timeout=SECONDS)
    assert response.status_code == 200, response.text
    return response.json() if path.startswith("/v1/") else response.text


def is_in_part(answer: Any) -> bool:
    if isinstance(answer, str):
        return re.search(r"^nuncius_worker_up\{.*\} 0", answer, re.MULTILINE) is not None
    return bool(answer["missing"])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline


def numbered(stats: dict[str, Any]) -> dict[int, int]:
    """Process ids by number."""
    return {each["worker"]: each["pid"] for each in stats["processes"]}


def test_statistics(pair: Pair) -> None:
    """Every answer has the sums of both workers, and what each has of them."""
    count = len(pair.clients)
    for _ in range(ASKED):
        stats = pair.whole("/v1/stats")
        assert stats["messages"]["published"]["total"] == count
        assert stats["doors"]["native"]["connections"] == count
        assert stats["doors"]["native"]["messages"]["published"]["total"] == count
        parts = [each["messages"]["published"]["total"] for each in stats["processes"]]
        assert (sum(parts), min(parts) > 0) == (count, True)
        assert list(numbered(stats)) == [1, 2]
        assert set(numbered(stats).values()) == {worker.pid for worker in workers(pair.node)}
        assert stats["started_at"] == min(each["started_at"] for each in stats["processes"])


def families(text: str) -> dict[str, Metric]:
    """The metrics, each family and each sample of which is there once."""
    headers = Counter(tuple(line.split()[:3]) for line in text.splitlines() if line.startswith("#"))
    found = list(text_string_to_metric_families(text))
    samples = Counter(
        (sample.name, *sorted(sample.labels.items())) for family in found for sample in family.samples
    )
    assert set(headers.values()) == set(samples.values()) == {1}
    return {family.name: family for family in found}


def by_worker(family: Metric, **labels: str) -> dict[str, float]:
    return {
        sample.labels["worker"]: sample.value
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    }


OF_THE_STORE = ("nuncius_queue", "nuncius_topic", "nuncius_subscription", "nuncius_store", "nuncius_node")
OF_THE_STORE_TOO = {"nuncius_failed_messages", "nuncius_dead_letters", "nuncius_inactive_actors"}


def test_metrics(pair: Pair) -> None:
    """What processes count says which it was; what is in the store is there once and does not."""
    for _ in range(ASKED):
        found = families(pair.whole("/metrics"))
        published = by_worker(found["nuncius_messages"], door="native", kind="published")
        assert (set(published), sum(published.values())) == ({"1", "2"}, len(pair.clients))
        assert by_worker(found["nuncius_worker_up"]) == {"1": 1, "2": 1}
        assert set(by_worker(found["nuncius_start_time_seconds"])) == {"1", "2"}
        for name, family in found.items():
            stored = name.startswith(OF_THE_STORE) or name in OF_THE_STORE_TOO
            assert {"worker" in sample.labels for sample in family.samples} <= {not stored}, name
        assert [sample.value for sample in found["nuncius_topics"].samples] == [1]


def test_connections(pair: Pair) -> None:
    """All are listed, under ids of their own, with the process that has them."""
    count = len(pair.clients)
    for _ in range(ASKED):
        found = pair.whole("/v1/connections?door=native")
        listed = found["connections"]
        assert {each["identity"] for each in listed} == {f"client {n}" for n in range(count)}
        assert len({each["id"] for each in listed}) == count
        assert {each["pid"] for each in listed} == {each.pid for each in workers(pair.node)}
        assert found["counts"]["native"] == count
        assert len(pair.get("/v1/connections?door=native&limit=1")["connections"]) == 1


def test_the_console(pair: Pair) -> None:
    """Its first look at a node shows all of it: processes, and the connections of each."""
    names = [f"client {n}" for n in range(len(pair.clients))]
    until(lambda: set(names) <= set(re.findall(r"client \d+", pair.get("/console/clients"))))


def told(*arguments: str, in_part: str) -> str:
    """What a command says when it does not say this: that a worker was late."""
    deadline = time.monotonic() + SECONDS
    while re.search(in_part, said := nuncius(*arguments).stdout):
        assert time.monotonic() < deadline, said
    return said


def test_top_and_status(pair: Pair) -> None:
    """The command line shows the sums, and how many processes there are."""
    count = len(pair.clients)
    document = json.loads(told("top", "-o", "json", "--http", pair.url, in_part=r'"missing": *\[ *\d'))
    assert document["stats"]["messages"]["published"]["total"] == count
    shown = told("top", "--once", "--http", pair.url, in_part="does not answer")
    assert "2 processes" in shown
    for number, pid in numbered(document["stats"]).items():
        assert f"worker {number}, {pid}" in shown
    lines = told("status", "--url", pair.node.url, in_part="silent").splitlines()
    facts = dict(line.split(None, 1) for line in lines if " " in line)
    assert facts["workers"] == "answering 2"
    assert f"native {count + 1}" in facts["connections"]
    assert f"published {count}" in facts["messages"]


def test_sending_somebody_away(fresh: Pair) -> None:
    """Whichever worker is asked, the connection that is meant ends: its own, or the other's."""
    with fresh.line(workers(fresh.node)[0].pid) as asked:

        def listed() -> set[str]:
            return {each["id"] for each in asked.get("/v1/connections?door=native")["connections"]}

        before = {each["id"] for each in fresh.whole("/v1/connections?door=native")["connections"]}
        chosen = {next(each for each in before if each.endswith(f"@{w.pid}")) for w in workers(fresh.node)}
        assert len(chosen) == 2
        for connection in chosen:
            assert asked.call("DELETE", f"/v1/connections/{connection}")[0] == 204
        until(lambda: not chosen & listed())
        until(lambda: before - chosen <= listed())  # nobody else is sent away
        for nobody in ("native-1", "native-1@1", *chosen):
            assert asked.call("DELETE", f"/v1/connections/{nobody}")[0] == 404


def test_a_replaced_worker_keeps_its_number(fresh: Pair) -> None:
    """It answers in the place of the one that died, whose socket does no harm before that."""
    before = numbered(fresh.whole("/v1/stats"))
    psutil.Process(before[2]).kill()
    assert f"worker=2 pid={before[2]} code=-9" in fresh.node.wait_for("a worker died")
    meanwhile = fresh.get("/v1/stats")
    assert sorted([*numbered(meanwhile), *meanwhile["missing"]]) == [1, 2]
    assert "worker=2" in fresh.node.wait_for("a worker runs again")
    for _ in range(ASKED):
        after = numbered(fresh.whole("/v1/stats"))
        assert (list(after), after[1], after[2] in before.values()) == ([1, 2], before[1], False)
    assert by_worker(families(fresh.whole("/metrics"))["nuncius_worker_up"]) == {"1": 1, "2": 1}


def test_a_worker_that_hangs_is_left_out(fresh: Pair) -> None:
    """The others answer without it, and say so; when it goes on it is there again."""
    numbers = numbered(fresh.whole("/v1/stats"))
    hanging = psutil.Process(numbers[2])
    listed = fresh.whole("/v1/connections?door=native")["connections"]
    at_one, at_two = ([each for each in listed if each["pid"] == numbers[n]] for n in (1, 2))
    with fresh.line(numbers[1]) as asked:
        hanging.suspend()
        try:
            stats = asked.get("/v1/stats")
            assert (numbered(stats), stats["missing"]) == ({1: numbers[1]}, [2])
            assert stats["messages"]["published"]["total"] == len(at_one)
            found = asked.get("/v1/connections?door=native")
            assert (len(found["connections"]), found["missing"]) == (len(at_one), [2])
            up = by_worker(families(asked.call("GET", "/metrics")[1].decode())["nuncius_worker_up"])
            assert up == {"1": 1, "2": 0}
            status, content = asked.call("DELETE", f"/v1/connections/{at_two[0]['id']}")
            assert (status, json.loads(content)["error"]) == (503, "unavailable")
            served = fresh.clients[int(at_one[0]["identity"].removeprefix("client "))]
            assert served.status()["workers"] == {"answering": 1, "silent": 1}
        finally:
            hanging.resume()
    assert fresh.whole("/v1/stats")["messages"]["published"]["total"] == len(fresh.clients)


def meeting_places(process: psutil.Process) -> set[Path]:
    """Where a process listens for others of its node."""
    paths = (Path(str(each.laddr)) for each in process.net_connections("unix"))
    return {path for path in paths if path.name in {"1.sock", "2.sock"}}


def meeting_place(pair: Pair) -> Path:
    """Where both workers of a node have a socket."""
    one, two = ({path.parent for path in meeting_places(worker)} for worker in workers(pair.node))
    assert one == two
    (directory,) = one
    return directory


def test_workers_meet_in_private(fresh: Pair) -> None:
    """In a directory that nobody else can look into and that goes with the node."""
    directory = meeting_place(fresh)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for client in fresh.clients:
        client.close()
    assert fresh.node.stop() == (0, "")
    assert not directory.exists()


def test_a_node_that_is_told_twice_to_stop(fresh: Pair) -> None:
    """It ends at once, with all its workers, and leaves nothing behind."""
    directory, (one, hanging) = meeting_place(fresh), workers(fresh.node)
    hanging.suspend()
    fresh.node.process.terminate()
    one.wait(SECONDS)
    assert fresh.node.stop()[0] == 128 + signal.SIGTERM
    assert psutil.wait_procs([one, hanging], timeout=SECONDS)[1] == []
    assert not directory.exists()


def test_a_node_without_workers_meets_nobody(dsn: str) -> None:
    """It listens on no socket besides its ports, and its answers name no worker."""
    with node("--store", dsn, "--http-port=0") as alone:
        process = psutil.Process(alone.process.pid)
        url = f"http://127.0.0.1:{alone.ready['ports']['http']}"
        assert meeting_places(process) == set()
        stats = get(url, "/v1/stats")
        assert (numbered(stats), stats["missing"]) == ({1: process.pid}, [])
        text = get(url, "/metrics")
        assert ("worker" in text, "nuncius_start_time_seconds " in text) == (False, True)
        with Client(alone.url) as client:
            assert "workers" not in client.status()
        for connection in get(url, "/v1/connections")["connections"]:
            assert (connection["pid"], "@" in connection["id"]) == (process.pid, False)
