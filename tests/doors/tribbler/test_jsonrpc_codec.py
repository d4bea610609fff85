"""Go's JSON-RPC: objects one after the other, with or without anything between them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch
from nuncius.doors.tribbler.jsonrpc_codec import JsonCall, JsonServerCodec
from nuncius.doors.tribbler.storage_messages import Client, GetListReply, GetReply, PutArgs, RegisterReply

texts = some.text(some.characters(exclude_categories=["Cs"]))
values = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**40), 2**40) | texts,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def test_a_call_and_its_answer() -> None:
    """As Go's own codec reads and writes them."""
    codec = JsonServerCodec()
    (call,) = codec.receive(
        b'{"method":"StorageRPC.Put","params":[{"Key":"k","Value":"v","More":[1]}],"id":7}'
    )
    assert (call.method, codec.arguments(call, PutArgs)) == ("StorageRPC.Put", PutArgs("k", "v"))
    assert codec.answer(call, GetReply(1)) == (
        b'{"id":7,"result":{"Status":1,"Value":"","Lease":{"Granted":false,"ValidSeconds":0}},"error":null}\n'
    )
    assert codec.refuse(call, "rpc: can't find method X.Y") == (
        b'{"id":7,"result":null,"error":"rpc: can\'t find method X.Y"}\n'
    )
    reply = RegisterReply(True, [Client("h:1", 2)])
    assert json.loads(codec.answer(call, reply))["result"]["Clients"] == [{"HostPort": "h:1", "NodeID": 2}]


def test_bytes_that_are_no_text() -> None:
    """JSON cannot carry them; they are replaced, and the answer is still an answer."""
    codec = JsonServerCodec()
    (call,) = codec.receive(b'{"method":"m","params":[],"id":"x"}')
    answer = json.loads(codec.answer(call, GetListReply(0, ["a\udcff", "b"])))
    assert answer["result"]["Value"] == ["a\N{REPLACEMENT CHARACTER}", "b"]
    assert json.loads(codec.refuse(call, "\udcff"))["id"] == "x"


@given(
    some.lists(values, min_size=1, max_size=4), some.integers(1, 30), some.sampled_from(["", "\n", " \r\n\t"])
)
def test_the_end_of_an_object_is_found(params: list[object], step: int, between: str) -> None:
    """Whatever is in it, and in pieces of any size."""
    text = between.join(
        json.dumps({"id": n, "params": [each], "method": 'a"{\\'}, ensure_ascii=n % 2 == 0)
        for n, each in enumerate(params)
    ).encode()
    codec = JsonServerCodec()
    calls: list[JsonCall] = []
    for at in range(0, len(text), step):
        calls += codec.receive(text[at : at + step])
    assert [(call.method, json.loads(call.id)) for call in calls] == [
        ('a"{\\', n) for n in range(len(params))
    ]
    assert [json.loads(call.params) for call in calls] == [[each] for each in params]


@pytest.mark.parametrize(
    "data",
    [
        *(b"[]", b'{"method":1}', b"{}", b"{,}", b'{"method":"x"}}', b"hello", b'{"method":"\\ud800"}'),
        b"{\xff}",
        b'{"method":"x","more":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
def test_what_is_no_request(data: bytes) -> None:
    """The connection is of no use after it."""
    codec = JsonServerCodec()
    with pytest.raises(GobError, match="jsonrpc"):
        list(codec.receive(data))


@pytest.mark.parametrize("params", [b"[]", b"[7]", b"[{},{}]", b"{}", b'[{"Key":7}]', b"null"])
def test_bad_arguments(params: bytes) -> None:
    """Arguments of another kind are the caller's mistake; the connection goes on."""
    codec = JsonServerCodec()
    (call,) = codec.receive(b'{"method":"m","params":' + params + b',"id":1}')
    with pytest.raises(Mismatch, match="jsonrpc"):
        codec.arguments(call, PutArgs)


def test_nothing_is_looked_at_twice() -> None:
    """A long string that arrives in small pieces takes no longer than in one, wherever it is cut."""
    codec = JsonServerCodec()
    text = json.dumps({"method": "m", "params": ['{\\"' * 500_000], "id": [1, 2]}).encode()
    calls: list[JsonCall] = []
    for at in range(0, len(text), 100):
        calls += codec.receive(text[at : at + 100])
    assert json.loads(calls[0].params) == ['{\\"' * 500_000]
    assert codec.incomplete == 0


@pytest.mark.parametrize("element", [b"{}", b"[]"])
def test_much_memory_for_few_bytes(element: bytes) -> None:
    """Long lists of next to nothing would take far more memory than they are long."""
    few, many = (b'{"method":"x","params":[' + b",".join([element] * n) + b"]}" for n in (8_000, 50_000))
    assert len(list(JsonServerCodec().receive(few))) == 1
    with pytest.raises(GobError, match="too many objects"):
        list(JsonServerCodec().receive(many))


def test_endless_requests() -> None:
    """A request has a limit."""
    codec = JsonServerCodec(100)
    assert list(codec.receive(b'{"method":"')) == []
    assert codec.incomplete == 11
    with pytest.raises(GobError, match="at most 100 bytes"):
        list(codec.receive(b"x" * 100))
