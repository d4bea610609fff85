"""net/rpc: the handshake, and calls and answers on both ends."""

import pytest

from doors.tribbler import captures
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch
from nuncius.doors.tribbler.rpc_codec import (
    CONNECT,
    CONNECTED,
    ClientCodec,
    HandshakeError,
    RpcCall,
    ServerCodec,
)
from nuncius.doors.tribbler.storage_messages import Client, GetArgs, GetReply, LeaseStruct, PutArgs


def connected() -> tuple[ClientCodec, ServerCodec]:
    client, server = ClientCodec(), ServerCodec()
    assert list(server.receive(CONNECT)) == []
    states = [client.is_connected]
    assert client.receive(server.to_say) == []
    assert [*states, client.is_connected] == [False, True]
    return client, server


@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_a_go_client(step: int) -> None:
    """The bytes of a Go client, in pieces of any size, are its calls."""
    server = ServerCodec()
    data = CONNECT + captures.CALLS
    calls: list[RpcCall] = []
    for at in range(0, len(data), step):
        calls += server.receive(data[at : at + step])
    assert server.to_say == CONNECTED == b"HTTP/1.0 200 Connected to Go RPC\n\n"
    assert [(call.method, call.seq) for call in calls] == [("StorageRPC.Get", 1), ("StorageRPC.Get", 300)]
    assert server.arguments(calls[0], GetArgs) == GetArgs("dga:post-1", True, "localhost:9010")
    assert server.arguments(calls[1], GetArgs) == GetArgs("dga:x")
    assert server.incomplete == 0


def test_a_go_server() -> None:
    """The bytes of a Go server are answers to our calls; the greeting may come in pieces."""
    client = ClientCodec()
    assert client.receive(CONNECTED[:7]) == []
    answers = client.receive(CONNECTED[7:] + captures.GET_REPLY + captures.REFUSED)
    assert [(answer.seq, answer.error) for answer in answers] == [
        (1, ""),
        (2, ""),
        (3, "rpc: can't find service Nope.Nope"),
    ]
    assert client.reply(answers[0], GetReply) == GetReply(0, "v", LeaseStruct(True, 5))
    assert client.reply(answers[1], GetReply) == GetReply(1)


def test_answers_in_any_order() -> None:
    """Answers carry the number of their call."""
    client, server = connected()
    sent = [client.call(n, "StorageRPC.Put", PutArgs(f"k{n}", "v")) for n in range(3)]
    calls = list(server.receive(b"".join(sent)))
    assert [server.arguments(call, PutArgs).key for call in calls] == ["k0", "k1", "k2"]
    data = b"".join(server.answer(call, GetReply(call.seq)) for call in reversed(calls))
    answers = client.receive(data + server.refuse(calls[1], "no"))
    assert [(each.seq, each.error) for each in answers] == [(2, ""), (1, ""), (0, ""), (1, "no")]
    assert client.reply(answers[0], GetReply).status == 2
    assert len(sent[1]) < len(sent[0])


@pytest.mark.parametrize(
    ("data", "last_words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"CONNECT /else HTTP/1.0\n\n", b"404"),
        (b"\n\n", b"405"),
        (b"x" * 9000, b""),
    ],
)
def test_other_visitors(data: bytes, last_words: bytes) -> None:
    """Who is no RPC client is told in HTTP, as Go's server does."""
    with pytest.raises(HandshakeError) as caught:
        list(ServerCodec().receive(data))
    assert caught.value.last_words.split()[1:2] == ([last_words] if last_words else [])


def test_a_connect_with_carriage_returns() -> None:
    """An HTTP client that ends its lines as HTTP says is served, too."""
    server = ServerCodec()
    calls = list(server.receive(b"CONNECT /_goRPC_ HTTP/1.1\r\nHost: x\r\n\r\n" + captures.CALLS))
    assert len(calls) == 2


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 404 Not Found\n\n", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", b"x" * 9000]
)
def test_other_servers(data: bytes) -> None:
    """What is no RPC server is not taken for one."""
    with pytest.raises(HandshakeError):
        ClientCodec().receive(data)


def test_types_inside_refused_arguments() -> None:
    """A type that was described inside arguments that nobody wanted, or wrong ones, is known later."""
    description, header = captures.CALLS[:48], captures.CALLS[48:70]
    odd = captures.ODD2[captures.ODD2.index(b"\x74\xff\x9d") :]
    end = odd.index(b"\x20\xff\x9e\x02")
    first, second = odd[:end], odd[end : end + 33]
    for wanted in (True, False):
        server = ServerCodec()
        list(server.receive(CONNECT))
        (one,) = server.receive(description + header + first)
        if wanted:
            with pytest.raises(Mismatch):
                server.arguments(one, Wrong)
        (two,) = server.receive(header + second)
        assert server.arguments(two, GetArgs) == GetArgs("k3")


class Wrong(Client, frozen=True):
    key: int = 0


def test_bad_streams() -> None:
    """A header that is none ends the connection."""
    server = ServerCodec()
    list(server.receive(CONNECT))
    with pytest.raises((GobError, Mismatch)):
        list(server.receive(captures.TRIBBLES + b"\xf0\xf0"))
