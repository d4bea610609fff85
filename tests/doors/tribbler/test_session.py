"""The port from outside: Go RPC and JSON-RPC, good calls and bad ones."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from doors.tribbler import captures
from doors.tribbler.conftest import Dial
from nuncius.broker import Broker
from nuncius.doors.tcp import TcpDoor
from nuncius.doors.tribbler.rpc_client import RpcClient, RpcError
from nuncius.doors.tribbler.rpc_codec import CONNECT, CONNECTED, ClientCodec
from nuncius.doors.tribbler.services import Method, Service, Services
from nuncius.doors.tribbler.session import RpcSession
from nuncius.doors.tribbler.storage_messages import (
    Client,
    ClientGetArgs,
    GetArgs,
    GetListReply,
    GetManyArgs,
    GetManyReply,
    GetReply,
    LeaseStruct,
    Nothing,
    PostArgs,
    PostReply,
    PutArgs,
    PutReply,
    RegisterArgs,
    RegisterReply,
    RevokeLeaseArgs,
    RevokeLeaseReply,
    RingArgs,
    RingMessage,
    RpcStruct,
)
from nuncius.doors.tribbler.tribserver_messages import CreateUserArgs, StatusReply
from nuncius.doors.wire import Session, Wire
from nuncius.ring.storage import StorageError
from racing import until


async def status(caller: RpcClient, method: str, key: str, value: str) -> int:
    return (await caller.call(f"StorageRPC.{method}", PutArgs(key, value), PutReply)).status


async def test_every_call_of_the_storage_service(caller: RpcClient, port: int) -> None:
    """All methods with all their statuses."""
    get, get_list = "StorageRPC.Get", "StorageRPC.GetList"
    assert (await caller.call(get, GetArgs("k:1"), GetReply)).status == 1
    assert await status(caller, "Put", "k:1", "v") == 0
    assert await caller.call(get, GetArgs("k:1"), GetReply) == GetReply(0, "v")
    assert await caller.call(get, GetArgs("k:1", True, "localhost:1"), GetReply) == GetReply(
        0, "v", LeaseStruct(True, 5)
    )
    assert (await caller.call(get, GetArgs("none", True, "localhost:1"), GetReply)).lease == LeaseStruct()
    assert await caller.call(get_list, GetArgs("l:1"), GetListReply) == GetListReply(1)
    assert await status(caller, "RemoveFromList", "l:1", "a") == 1
    assert await status(caller, "AppendToList", "l:1", "a") == 0
    assert await status(caller, "AppendToList", "l:1", "a") == 4
    assert await caller.call(get_list, GetArgs("l:1", True, "localhost:1"), GetListReply) == GetListReply(
        0, ["a"], LeaseStruct(True, 5)
    )
    assert await status(caller, "Put", "k" * 2000, "v") == 3
    assert await status(caller, "AppendToList", "k" * 2000, "v") == 3
    info = RegisterArgs(Client("localhost:1", 99))
    assert await caller.call("StorageRPC.Register", info, RegisterReply) == RegisterReply(
        True, [Client(f"localhost:{port}", 7)], 1
    )
    revoked = await caller.call("StorageRPC.RevokeLease", RevokeLeaseArgs("k:1"), RevokeLeaseReply)
    assert revoked.status == 0
    many = GetManyArgs(["k:1", "none"], [], "")
    assert await caller.call("StorageRPC.GetMany", many, GetManyReply) == GetManyReply(
        [GetReply(0, "v"), GetReply(1)]
    )
    with pytest.raises(RpcError, match="as many"):
        await caller.call("StorageRPC.GetMany", GetManyArgs(["k:1", "b"], [True], ""), GetManyReply)
    post = PostArgs("u:p", "v", "u:l", "i", "u", b"body")
    assert await caller.call("StorageRPC.Post", post, PostReply) == PostReply(1)
    ring = await caller.call("StorageRPC.Ring", RingArgs(), RingMessage)
    assert ring == RingMessage(1, [Client(f"localhost:{port}", 7)])
    assert (await caller.call("Tribserver.CreateUser", CreateUserArgs("dga"), StatusReply)).status == 0


async def test_rings_that_cannot_be(caller: RpcClient) -> None:
    """Ids have 32 bits, and a ring has nodes."""
    with pytest.raises(RpcError, match="32 bits"):
        await caller.call("StorageRPC.Register", RegisterArgs(Client("x:1", 2**32)), RegisterReply)
    with pytest.raises(RpcError, match="at least one node"):
        await caller.call("StorageRPC.HandOver", RingMessage(9, []), Nothing)


async def test_removing_after_a_lease(caller: RpcClient) -> None:
    """A holder that cannot be reached is waited for; here it can: it is a node like any other."""
    assert await status(caller, "AppendToList", "l:1", "a") == 0
    asked = GetArgs("l:1", True, caller.address)
    assert (await caller.call("StorageRPC.GetList", asked, GetListReply)).lease.granted
    async with asyncio.timeout(9):
        assert await status(caller, "RemoveFromList", "l:1", "a") == 0
        assert await status(caller, "RemoveFromList", "l:1", "a") == 2


async def test_errors_as_go_says_them(caller: RpcClient) -> None:
    """Unknown services and methods, and arguments of a wrong type; the connection lives on."""
    for method, error in {
        "StorageRPC.Nope": "rpc: can't find method StorageRPC.Nope",
        "Nope.Nope": "rpc: can't find service Nope.Nope",
        "Nope": "rpc: service/method request ill-formed: Nope",
    }.items():
        with pytest.raises(RpcError) as caught:
            await caller.call(method, GetArgs(), GetReply)
        assert str(caught.value) == error
    with pytest.raises(RpcError, match=r"bool where str is wanted .*Mistaken.Key"):
        await caller.call("StorageRPC.Get", Mistaken(True), GetReply)
    assert await status(caller, "Put", "k:1", "v") == 0
    with pytest.raises(RpcError, match="str where list"):
        await caller.call("StorageRPC.Get", GetArgs("k:1"), GetListReply)


class Mistaken(RpcStruct, frozen=True):
    key: bool = False


async def test_many_calls_on_one_connection(caller: RpcClient) -> None:
    """Thousands in flight at once, each with its own answer."""
    await asyncio.gather(*(status(caller, "Put", f"k{n}:x", f"v{n}") for n in range(1000)))
    replies = await asyncio.gather(
        *(caller.call("StorageRPC.Get", GetArgs(f"k{n}:x"), GetReply) for n in range(1000))
    )
    assert [reply.value for reply in replies] == [f"v{n}" for n in range(1000)]


async def test_a_lease_for_a_client_of_fall_2011(caller: RpcClient, dial: Dial) -> None:
    """Its edition names the client by a struct, which is understood over gob and over JSON, for values and
    lists; anything else than a struct or an address is refused."""
    client = Client("localhost:1", 7)
    assert await status(caller, "Put", "k:1", "v") == 0
    assert await status(caller, "AppendToList", "l:1", "a") == 0
    asked = ClientGetArgs("k:1", True, client)
    lease = LeaseStruct(True, 5)
    assert await caller.call("StorageRPC.Get", asked, GetReply) == GetReply(0, "v", lease)
    assert await caller.call("StorageRPC.Get", ClientGetArgs("k:1"), GetReply) == GetReply(0, "v")
    asked = ClientGetArgs("l:1", True, client)
    assert await caller.call("StorageRPC.GetList", asked, GetListReply) == GetListReply(0, ["a"], lease)
    with pytest.raises(RpcError, match="another type where str or Client is wanted"):
        await caller.call("StorageRPC.Get", NumberedGetArgs("k:1", True, 7), GetReply)
    reader, writer = await dial()
    for holder in ({"HostPort": "localhost:1", "NodeID": 7}, "localhost:1", 7):
        argument = {"Key": "k:1", "WantLease": True, "LeaseClient": holder}
        writer.write(json.dumps({"method": "StorageRPC.Get", "params": [argument], "id": 1}).encode())
        answer = json.loads(await reader.readline())
        if holder == 7:
            assert "jsonrpc" in answer["error"]
        else:
            wanted = {"Status": 0, "Value": "v", "Lease": {"Granted": True, "ValidSeconds": 5}}
            assert answer["result"] == wanted


class NumberedGetArgs(RpcStruct, frozen=True):
    """What no edition sends."""

    key: str
    want_lease: bool
    lease_client: int


async def test_json_on_the_same_port(dial: Dial) -> None:
    """The first byte tells the two apart."""
    reader, writer = await dial()
    calls = [
        ("StorageRPC.Put", {"Key": "k", "Value": "v"}),
        ("StorageRPC.Nope", {}),
        ("StorageRPC.Put", 7),
    ]
    for n, (method, argument) in enumerate(calls):
        writer.write(json.dumps({"method": method, "params": [argument], "id": n}).encode())
    answers = [json.loads(await reader.readline()) for _ in calls]
    answers.sort(key=lambda answer: answer["id"])
    assert answers[0] == {"id": 0, "result": {"Status": 0}, "error": None}
    assert answers[1]["error"] == "rpc: can't find method StorageRPC.Nope"
    assert answers[2]["result"] is None
    assert "jsonrpc" in answers[2]["error"]


async def test_gob_without_http(dial: Dial) -> None:
    """Who begins with gob at once, as Go's `rpc.Dial` does, is served, too."""
    reader, writer = await dial()
    writer.write(captures.CALLS)
    codec = ClientCodec()
    answers = codec.receive(CONNECTED)
    async with asyncio.timeout(60):
        while len(answers) < 2:
            answers += codec.receive(await reader.read(65536))
    assert sorted(answer.seq for answer in answers) == [1, 300]
    assert {codec.reply(answer, GetReply).status for answer in answers} == {1}


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.0 405 Method Not Allowed"),
        (b"CONNECT /x HTTP/1.0\n\n", b"HTTP/1.0 404 Not Found"),
        (CONNECT + b"\xf0\xf0", CONNECTED),
        (CONNECT + captures.TRIBBLES, CONNECTED),
        (b"{]", b""),
    ],
)
async def test_what_is_not_served(dial: Dial, caller: RpcClient, data: bytes, answer: bytes) -> None:
    """A connection that makes no sense is closed, with a word where there is one; others go on."""
    reader, writer = await dial()
    writer.write(data)
    if answer == CONNECTED:
        writer.write(b"\x03\xff\xfe\x00")
    async with asyncio.timeout(60):
        assert (await reader.read()).startswith(answer)
    assert await status(caller, "Put", "k", "v") == 0


async def test_arguments_that_are_damaged(dial: Dial) -> None:
    """A body that cannot be read ends the connection: nothing after it could be trusted."""
    reader, writer = await dial()
    call = captures.CALLS[:70]
    writer.write(CONNECT + call + captures.CALLS[70:130] + b"\x03\xff\x84\x05")
    async with asyncio.timeout(60):
        assert await reader.read() == CONNECTED


@pytest.mark.parametrize("broken", [b"]", b'{"id":1}'])
async def test_whole_json_calls_before_a_broken_one(dial: Dial, caller: RpcClient, broken: bytes) -> None:
    """Calls before one that makes no sense, in the same segment, are carried out and answered."""
    reader, writer = await dial()
    put = b'{"method":"StorageRPC.Put","params":[{"Key":"%b","Value":"v"}],"id":1}'
    writer.write(put % b"one" + put % b"two" + broken)
    async with asyncio.timeout(60):
        answers = [json.loads(line) for line in (await reader.read()).splitlines()]
    assert [answer["error"] for answer in answers] == [None, None]
    writer.close()
    for key in ("one", "two"):
        assert (await caller.call("StorageRPC.Get", GetArgs(key), GetReply)).value == "v"


async def test_whole_go_calls_before_a_broken_one(dial: Dial, caller: RpcClient) -> None:
    """The same of calls in Go's encoding."""
    client = ClientCodec()
    client.receive(CONNECTED)
    calls = client.call(1, "StorageRPC.Put", PutArgs("one", "v")) + client.call(
        2, "StorageRPC.Put", PutArgs("two", "v")
    )
    reader, writer = await dial()
    writer.write(CONNECT + calls + b"\xf0\xf0")
    async with asyncio.timeout(60):
        said = await reader.read()
    writer.close()
    assert said.startswith(CONNECTED)
    assert {answer.seq for answer in client.receive(said.removeprefix(CONNECTED))} == {1, 2}
    for key in ("one", "two"):
        assert (await caller.call("StorageRPC.Get", GetArgs(key), GetReply)).value == "v"


class Slow:
    """A service whose calls end when the test says so."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0

    async def wait(self, asked: GetArgs) -> GetReply:
        self.begun += 1
        await self.go_on.wait()
        if asked.key == "fault":
            raise ZeroDivisionError
        if asked.key == "refuse":
            raise StorageError("not today")
        return GetReply(0, asked.key)


class SlowDoor(TcpDoor):
    name = "tribbler"

    def __init__(self, broker: Broker, slow: Slow) -> None:
        super().__init__(broker)
        wait = Method(GetArgs, slow.wait)
        look = Method(GetArgs, slow.wait, reads=True)
        self._services = Services([Service("Slow", {"Wait": wait, "Look": look})])

    def greet(self, wire: Wire) -> Session:
        return RpcSession(self._services, wire)


@pytest.fixture
async def slow(broker: Broker) -> AsyncIterator[tuple[Slow, SlowDoor, RpcClient]]:
    service = Slow()
    door = SlowDoor(broker, service)
    caller = RpcClient(f"localhost:{await door.open('localhost', 0)}")
    yield service, door, caller
    service.go_on.set()
    caller.close()
    await door.close()


async def test_faults_are_answered(slow: tuple[Slow, SlowDoor, RpcClient]) -> None:
    """What a call raises is its caller's error; a fault of ours does not tell more than its name."""
    service, _, caller = slow
    service.go_on.set()
    with pytest.raises(RpcError, match=r"^not today$"):
        await caller.call("Slow.Wait", GetArgs("refuse"), GetReply)
    with pytest.raises(RpcError, match="internal error: ZeroDivisionError"):
        await caller.call("Slow.Wait", GetArgs("fault"), GetReply)


async def test_an_orderly_end(slow: tuple[Slow, SlowDoor, RpcClient]) -> None:
    """A door that closes answers what it has accepted."""
    service, door, caller = slow
    calling = asyncio.ensure_future(caller.call("Slow.Wait", GetArgs("k"), GetReply))
    await until(lambda: service.begun)
    closing = asyncio.ensure_future(door.close())
    await asyncio.sleep(0)
    service.go_on.set()
    assert (await calling).value == "k"
    await closing


async def test_a_client_that_goes_away(slow: tuple[Slow, SlowDoor, RpcClient], broker: Broker) -> None:
    """What it had begun is carried out, and nothing of it is left behind."""
    service, door, caller = slow
    calling = asyncio.ensure_future(caller.call("Slow.Wait", GetArgs("k"), GetReply))
    await until(lambda: service.begun)
    caller.close()
    with pytest.raises(Exception, match="lost before the answer"):
        await calling
    await until(lambda: door.connections == 0)
    service.go_on.set()
    await until(lambda: broker.pressure.level == 0)


async def test_reads_of_a_client_that_goes_away(
    slow: tuple[Slow, SlowDoor, RpcClient], broker: Broker
) -> None:
    """Those that had not begun are not carried out: nobody is there to have the answers."""
    service, door, caller = slow
    looking = [asyncio.ensure_future(caller.call("Slow.Look", GetArgs("k"), GetReply)) for _ in range(100)]
    first = 1  # nobody knows yet how large the answers are
    await until(lambda: service.begun == first)
    caller.close()
    await asyncio.gather(*looking, return_exceptions=True)
    await until(lambda: door.connections == 0)
    service.go_on.set()
    await until(lambda: broker.pressure.level == 0)
    assert service.begun == first


async def test_a_client_that_only_stops_asking(slow: tuple[Slow, SlowDoor, RpcClient]) -> None:
    """A JSON client that has closed its own side gets its answers; then the connection ends."""
    service, _, caller = slow
    host, _, port = caller.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for key in ("a", "b"):
        writer.write(b'{"method":"Slow.Wait","params":[{"Key":"%s"}],"id":1}' % key.encode())
    writer.write_eof()
    await until(lambda: service.begun == 2)
    service.go_on.set()
    async with asyncio.timeout(60):
        answers = [json.loads(line)["result"]["Value"] for line in (await reader.read()).splitlines()]
    assert sorted(answers) == ["a", "b"]
    writer.close()


async def test_a_large_call_counts_with_all_its_bytes(
    slow: tuple[Slow, SlowDoor, RpcClient], broker: Broker
) -> None:
    """What has arrived of a call piece by piece is memory that it takes until it is answered."""
    service, _, caller = slow
    size = 4 << 20
    calling = asyncio.ensure_future(caller.call("Slow.Wait", GetArgs("k" * size), GetReply))
    await until(lambda: service.begun)
    assert broker.pressure.level > size
    service.go_on.set()
    assert len((await calling).value) == size
    await until(lambda: broker.pressure.level == 0)


async def test_requests_that_do_not_end(dial: Dial, broker: Broker) -> None:
    """When too many large requests have begun, the slowest connection is cut off."""
    broker.pressure.budget = 6 << 20
    connections = [await dial() for _ in range(3)]
    for _, writer in connections:
        writer.write(CONNECT + b"\xfd\xff\xff\xff" + b"x" * (2 << 20))
    ends = [asyncio.ensure_future(reader.read()) for reader, _ in connections]
    ended, _ = await asyncio.wait(ends, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert ended
    for _, writer in connections:
        writer.close()
    await asyncio.gather(*ends, return_exceptions=True)
    await until(lambda: broker.pressure.held == 0)
