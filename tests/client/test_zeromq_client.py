"""The client of reliable pub/sub: what it promises when answers get lost and processes die."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doors.zeromq.middleman import Middleman
from doors.zeromq.peer import node_in_a_thread
from fix_store import execute
from nuncius.client.errors import CannotConnect, InvalidInput
from nuncius.client.zeromq import (
    AlreadySubscribed,
    CountMismatch,
    Message,
    NoAnswer,
    NotSubscribed,
    PubSubClient,
    StateDamaged,
    StateInUse,
)
from nuncius.client.zeromq_state import ClientState, default_directory

SOON = 0.5  # seconds after which a lost answer counts as lost


@pytest.fixture
def port(dsn: str) -> Iterator[int]:
    with node_in_a_thread(dsn) as number:
        yield number


@pytest.fixture
def ann(port: int, tmp_path: Path) -> Iterator[PubSubClient]:
    """A client with nothing in between."""
    with PubSubClient("ann", f"tcp://127.0.0.1:{port}", directory=tmp_path) as client:
        yield client


@pytest.fixture
def middleman(port: int) -> Iterator[Middleman]:
    with Middleman(port) as between:
        yield between


@pytest.fixture
def bob(middleman: Middleman, tmp_path: Path) -> Iterator[PubSubClient]:
    """A client whose requests and answers may get lost."""
    with PubSubClient("bob", middleman.url, directory=tmp_path, timeout=SOON, tries=4) as client:
        yield client


def has_ipv6_here() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def read_all(client: PubSubClient, topic: str) -> list[str]:
    texts = []
    while (message := client.get(topic)) is not None:
        texts.append(message.text)
    return texts


# The verbs


def test_a_conversation(ann: PubSubClient) -> None:
    """Subscribe, put, get, unsubscribe."""
    assert ann.subscribe("news") == -1
    assert ann.subscriptions == {"news": -1}
    assert ann.put("news", "text") == 1
    assert ann.put("news", b"\xff\0") == 1
    assert ann.put("elsewhere", "text") == 0
    assert ann.get("news") == Message("news", 0, b"text", 1)
    message = ann.get("news", wait=20)
    assert message == Message("news", 1, b"\xff\0", 1)
    assert message.text == "\ufffd\0"
    assert ann.get("news") is None
    assert ann.get("news", wait=0.01) is None
    assert ann.published("news") == 2
    assert ann.published("nowhere") == 0
    ann.unsubscribe("news")
    assert ann.subscriptions == {}


def test_a_restart(ann: PubSubClient, port: int, tmp_path: Path) -> None:
    """A client that comes back goes on where it was."""
    ann.subscribe("news")
    for n in range(3):
        ann.put("news", f"{n}")
    ann.get("news")
    ann.close()
    with PubSubClient("ann", f"tcp://127.0.0.1:{port}", directory=tmp_path) as again:
        assert read_all(again, "news") == ["1", "2"]
        assert again.put("news", "3") == 1
        assert read_all(again, "news") == ["3"]


def test_errors(ann: PubSubClient) -> None:
    """What the broker refuses is an exception of its own kind."""
    with pytest.raises(NotSubscribed):
        ann.get("news")
    with pytest.raises(NotSubscribed):
        ann.unsubscribe("news")
    ann.subscribe("news")
    with pytest.raises(AlreadySubscribed):
        ann.subscribe("news")
    for topic in ("", "x" * 256, "a\nb", "\ud800"):
        with pytest.raises(InvalidInput):
            ann.subscribe(topic)
        with pytest.raises(InvalidInput):
            ann.put(topic, "text")
    for wait in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            ann.get("news", wait)
    assert ann.put("news", "text") == 1


def test_a_wait_in_parts(ann: PubSubClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long wait is several requests, so that a broker that is gone is noticed."""
    monkeypatch.setattr("nuncius.client.zeromq.LONGEST_WAIT", 0.02)
    ann.subscribe("news")
    assert ann.get("news", wait=0.05) is None
    ann.put("news", "text")
    assert ann.get("news", wait=0.05) is not None


def test_receiving(ann: PubSubClient) -> None:
    """A message that is received in a block counts when the block ends well."""
    ann.subscribe("news")
    ann.put("news", "text")
    with pytest.raises(ValueError, match="no"), ann.receive("news") as message:  # noqa: PT012
        assert message == Message("news", 0, b"text", 0)
        raise ValueError("no")
    with ann.receive("news") as message:
        assert message == Message("news", 0, b"text", 0)
    with ann.receive("news") as message:
        assert message is None


# Lost on the way


def test_lost_answers(bob: PubSubClient, middleman: Middleman) -> None:
    """Whichever answer is lost, everything happens once."""
    middleman.lose_answers = 1
    assert bob.subscribe("news") == -1
    middleman.lose_answers = 2
    assert bob.put("news", "one") is None
    middleman.lose_requests = 1
    assert bob.put("news", "two") == 1
    middleman.lose_answers = 1
    assert bob.get("news") == Message("news", 0, b"one", 1)
    assert read_all(bob, "news") == ["two"]
    assert bob.published("news") == 2
    middleman.lose_answers = 1
    bob.unsubscribe("news")
    assert bob.subscriptions == {}


def test_the_same_bytes(bob: PubSubClient, middleman: Middleman) -> None:
    """A request that is sent again is the same request."""
    middleman.lose_requests = 3
    bob.put("news", "text")
    assert middleman.requests == [[b"p", b"bob", b"news", b"1", b"text"]] * 4


def test_giving_up(bob: PubSubClient, middleman: Middleman) -> None:
    """After so many tries the client gives up with a clear error. No put is given up for good: it comes
    before the next one, whether or not it had been stored, and so does one that never got its turn."""
    bob.subscribe("news")
    middleman.lose_requests = 4
    with pytest.raises(NoAnswer, match=r"4 tries of 0\.5 seconds\); the message is kept"):
        bob.put("news", "one")
    middleman.lose_answers = 4
    with pytest.raises(CannotConnect):
        bob.put("news", "two")  # after "one", which is not answered
    assert bob.put("news", "three") == 1
    assert read_all(bob, "news") == ["one", "two", "three"]
    middleman.lose_answers = 4
    with pytest.raises(NoAnswer):
        bob.put("news", "four")
    assert bob.published("news") == 4
    assert read_all(bob, "news") == ["four"]


def test_nobody_there(tmp_path: Path) -> None:
    """Without a broker every call ends with an error that says where nobody was."""
    with PubSubClient("ann", "tcp://127.0.0.1:1", directory=tmp_path, timeout=0.01, tries=2) as client:
        with pytest.raises(NoAnswer, match=r"tcp://127\.0\.0\.1:1"):
            client.subscribe("news")
        with pytest.raises(NoAnswer):
            client.subscribe("news")


@pytest.mark.skipif(not has_ipv6_here(), reason="this machine has no IPv6")
def test_ipv6(dsn: str, tmp_path: Path) -> None:
    """A broker that listens on an IPv6 address is reached by it."""
    with (
        node_in_a_thread(dsn, "::1") as port,
        PubSubClient("ann", f"tcp://[::1]:{port}", directory=tmp_path, timeout=20, tries=1) as client,
    ):
        assert client.subscribe("news") == -1


def test_no_address(tmp_path: Path) -> None:
    """An address that is none is a mistake of the caller."""
    with (
        PubSubClient("ann", "nonsense", directory=tmp_path) as client,
        pytest.raises(InvalidInput, match="nonsense"),
    ):
        client.subscribe("news")
    for options in ({"timeout": 0}, {"tries": 0}):
        with pytest.raises(InvalidInput):
            PubSubClient("ann", directory=tmp_path, **options)  # type: ignore[arg-type]


# States that do not agree


def test_another_count(ann: PubSubClient, dsn: str) -> None:
    """When the broker has another count, the message is not stored and the client says so; then it goes by
    the broker's."""
    ann.put("news", "one")
    ann.put("news", "two")
    execute(dsn, "select nuncius.delete_topic('news')")
    with pytest.raises(CountMismatch, match="has 0 messages of 'ann' in 'news', not 2"):
        ann.put("news", "three")
    ann.subscribe("news")
    assert ann.put("news", "three") == 1
    assert read_all(ann, "news") == ["three"]


def test_another_count_for_several(bob: PubSubClient, middleman: Middleman, dsn: str) -> None:
    """With the message that the broker does not accept go those that were to be put before it."""
    bob.put("news", "one")
    execute(dsn, "select nuncius.delete_topic('news')")
    middleman.lose_requests = 4
    with pytest.raises(NoAnswer):
        bob.put("news", "two")
    with pytest.raises(CountMismatch, match="not 1; 2 more were not stored"):
        bob.put("news", "three")
    assert bob.published("news") == 0
    bob.subscribe("news")
    assert bob.put("news", "four") == 1
    assert read_all(bob, "news") == ["four"]


def test_a_count_of_somebody_else(ann: PubSubClient, port: int, tmp_path: Path) -> None:
    """When the broker has the count of a message that was never sent before, somebody else with this id has
    put another message: that is no lost answer, and the client says so."""
    ann.put("news", "one")
    with PubSubClient("ann", f"tcp://127.0.0.1:{port}", directory=tmp_path / "other") as twin:
        with pytest.raises(CountMismatch, match="has 1 messages of 'ann' in 'news', not 0"):
            twin.put("news", "two")
        twin.subscribe("news")
        assert twin.put("news", "three") == 1
        assert read_all(twin, "news") == ["three"]


def test_a_broker_that_was_set_back(ann: PubSubClient) -> None:
    """When the broker has less than the client has had (a backup was restored, say), what comes from then on
    is got."""
    ann.subscribe("news")
    ann.put("news", "one")
    ann._remembered.subscriptions["news"] = 7  # noqa: SLF001
    assert ann.get("news") is None
    ann.put("news", "two")
    assert read_all(ann, "news") == ["two"]


def test_unsubscribed_elsewhere(ann: PubSubClient, dsn: str) -> None:
    """A subscription that is gone is gone here too."""
    for use in (ann.get, ann.unsubscribe):
        ann.subscribe("news")
        execute(dsn, "select nuncius.unsubscribe('news', 'ann')")
        if use == ann.get:
            with pytest.raises(NotSubscribed):
                use("news")
        else:
            use("news")
        assert ann.subscriptions == {}
    ann.subscribe("news")
    execute(dsn, "select nuncius.unsubscribe('news', 'ann')")
    assert ann.subscribe("news") == -1


def test_a_lost_state(ann: PubSubClient, port: int, tmp_path: Path) -> None:
    """A client that has lost its state takes its subscription over, after what it has confirmed."""
    ann.subscribe("news")
    for n in range(4):
        ann.put("news", f"{n}")
    for _ in range(3):
        ann.get("news")
    with PubSubClient("ann", f"tcp://127.0.0.1:{port}", directory=tmp_path / "other") as again:
        assert again.subscribe("news") == 1
        assert read_all(again, "news") == ["2", "3"]


@pytest.mark.parametrize("collected", [False, True])
def test_an_old_state(ann: PubSubClient, dsn: str, collected: bool) -> None:
    """A state that was restored from a copy sees again what is still there, and never gets stuck."""
    ann.subscribe("news")
    for n in range(4):
        ann.put("news", f"{n}")
    read_all(ann, "news")
    if collected:
        execute(dsn, "select nuncius.collect()")
    ann.put("news", "4")
    ann._remembered.subscriptions["news"] = 0  # noqa: SLF001
    assert read_all(ann, "news") == (["4"] if collected else ["1", "2", "3", "4"])


def test_an_old_state_subscribes(ann: PubSubClient) -> None:
    """Subscribing again does not lead back behind what is confirmed."""
    ann.subscribe("news")
    for n in range(4):
        ann.put("news", f"{n}")
    read_all(ann, "news")
    ann._remembered.subscriptions["news"] = 0  # noqa: SLF001
    with pytest.raises(AlreadySubscribed):
        ann.subscribe("news")
    assert ann.subscriptions == {"news": 3}


# The state file


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """Two clients cannot use one state at once; the second is told which file it is."""
    with PubSubClient("ann", directory=tmp_path), pytest.raises(StateInUse, match=r"ann\.json"):
        PubSubClient("ann", directory=tmp_path)
    PubSubClient("ann", directory=tmp_path).close()


def test_what_is_in_it(ann: PubSubClient, tmp_path: Path) -> None:
    """The state is a JSON document that only its owner can read, and says what there is to know."""
    ann.subscribe("news")
    ann.put("news", "text")
    ann.get("news")
    file = tmp_path / "ann.json"
    assert json.loads(file.read_text()) == {
        "client": "ann",
        "subscriptions": {"news": 0},
        "publications": {"news": {"count": 1}},
    }
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_full_disk(ann: PubSubClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be noted has not happened: a message that was not returned is returned by the next call,
    one that was not put is not put later."""

    def full(_: int) -> None:
        raise OSError("no space left")

    ann.subscribe("news")
    ann.put("news", "one")
    ann.put("news", "two")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            ann.get("news")
        with pytest.raises(OSError, match="no space left"):
            ann.put("news", "three")
    assert ann.published("news") == 2
    assert ann.put("news", "four") == 1
    assert read_all(ann, "news") == ["one", "two", "four"]


def test_directories_that_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The names of directories that are made for a state are brought to the disk."""
    synced: list[int] = []
    original = os.fsync

    def sync(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        original(file)

    monkeypatch.setattr(os, "fsync", sync)
    ClientState("ann", tmp_path / "deep" / "down").close()
    assert synced == [tmp_path.stat().st_ino, (tmp_path / "deep").stat().st_ino]


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "ünï code", "a\nb"])
def test_names_of_files(name: str, tmp_path: Path) -> None:
    """Whatever a client is called, its files lie in its directory."""
    state = ClientState(name, tmp_path / "deep" / "down")
    state.save()
    state.close()
    state.close()
    assert len(list((tmp_path / "deep" / "down").iterdir())) == 2
    assert len(list(tmp_path.rglob("*"))) == 4
    assert ClientState(name, tmp_path / "deep" / "down").remembered.client == name


@pytest.mark.parametrize("name", ["", "x" * 300, "\ud800"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    """A client needs a name that can be one."""
    with pytest.raises(InvalidInput):
        ClientState(name, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"client": 1}', '{"client": "eve"}', '{"client": "ann", "subscriptions": 1}'),
        '{"client": "ann", "subscriptions": {"news": -2}}',
        '{"client": "ann", "publications": {"news": {"count": -1}}}',
    ],
)
def test_a_damaged_file(text: str, tmp_path: Path) -> None:
    """A file that is not what we wrote is not taken for an empty one; and its lock is given back."""
    (tmp_path / "ann.json").write_text(text)
    for _ in range(2):
        with pytest.raises(StateDamaged):
            ClientState("ann", tmp_path)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By default it lies in the user's state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "nuncius" / "pubsub"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local" / "state" / "nuncius" / "pubsub"


# Killed at every step

DYING = """
import os, pathlib, signal, sys
from nuncius.client.zeromq import PubSubClient

url, directory, steps, *todo = sys.argv[1:]
left = int(steps)

def step(work):
    def working(*arguments):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments)
    return working

os.fsync, pathlib.Path.replace = step(os.fsync), step(pathlib.Path.replace)
with PubSubClient("bob", url, directory=directory) as client:
    for verb, *arguments in map(str.split, todo):
        print(getattr(client, verb)(*arguments), flush=True)
"""


def die(port: int, directory: Path, steps: int, *todo: str) -> tuple[int, list[str]]:
    """Runs a client that is killed before so many steps on the disk; how it ended, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", DYING, f"tcp://127.0.0.1:{port}", str(directory), str(steps), *todo],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
        env=os.environ,
    )
    return done.returncode, done.stdout.splitlines()


def test_killed_while_putting(ann: PubSubClient, port: int, tmp_path: Path) -> None:
    """Wherever a publisher is killed, it knows afterwards what is stored, everything is stored once, and what
    it puts then is not taken for what it put before."""
    ann.subscribe("news")
    expected: list[str] = []
    steps = 0
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        steps += 1
        code, _ = die(port, tmp_path, steps, f"put news {steps}-a", f"put news {steps}-b")
        with PubSubClient("bob", f"tcp://127.0.0.1:{port}", directory=tmp_path) as bob:
            stored = bob.published("news") - len(expected)
            expected += [f"{steps}-a", f"{steps}-b"][:stored]
            bob.put("news", f"{steps}-c")
            expected.append(f"{steps}-c")
    assert steps == 13
    assert read_all(ann, "news") == expected


def test_killed_while_getting(port: int, tmp_path: Path) -> None:
    """Wherever a subscriber is killed, it never gets a message twice, and misses at most the one that it was
    about to get."""
    steps = 0
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        steps += 1
        topic = f"news-{steps}"
        todo = [f"subscribe {topic}", f"put {topic} 0", f"put {topic} 1", f"get {topic}", f"get {topic}"]
        code, said = die(port, tmp_path, steps, *todo)
        with PubSubClient("bob", f"tcp://127.0.0.1:{port}", directory=tmp_path) as bob:
            if topic not in bob.subscriptions:
                assert bob.subscribe(topic) == -1
            for n in range(bob.published(topic), 2):
                bob.put(topic, f"{n}")
            got = [line.split("body=b'")[1][0] for line in said[3:]]
            rest = read_all(bob, topic)
        assert got + rest in (["0", "1"], ["0"], ["1"])
    assert steps == 22
