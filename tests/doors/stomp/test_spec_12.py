"""Every MUST of the text of STOMP 1.2 that a server can keep or break, in the order of the text."""

import asyncio

import pytest

from doors.stomp.peer import Node, Peer, connected, running_node, stranger
from nuncius.doors.stomp.frames.codec import Frame

# STOMP frames


async def test_line_ends(node: Node) -> None:
    """A line ends with a line feed, before which a carriage return may stand; so does the blank line."""
    async with stranger(node) as peer:
        peer.write(b"CONNECT\r\naccept-version:1.2\r\nhost:x\r\n\r\n\0\r\n")
        await peer.expect("CONNECTED")
        peer.write(b"SUBSCRIBE\r\nid:0\r\ndestination:/topic/a\r\n\r\n\0\r\n\r\n")
        peer.write(b"SEND\r\ndestination:/topic/a\r\nreceipt:1\r\n\r\nhi\r\n\0")
        frames = sorted([await peer.frame(), await peer.frame()], key=lambda frame: frame.command)
        assert (frames[0].command, frames[0].body) == ("MESSAGE", b"hi\r\n")
        assert frames[1] == Frame("RECEIPT", {"receipt-id": "1"})


async def test_case(ann: Peer) -> None:
    """Commands and header names are case sensitive."""
    assert "send" in await ann.refused("send", destination="/topic/a")


async def test_case_of_headers(ann: Peer) -> None:
    """A header with another case is another header."""
    assert "destination" in await ann.refused("SEND", Destination="/topic/a")


async def test_escapes_are_decoded_and_encoded(ann: Peer) -> None:
    r"""\r, \n, \c and \\ MUST be translated to what they stand for, and back when a frame is written."""
    await ann.subscribe("/topic/a")
    ann.write(b"SEND\ndestination:/topic/a\nn\\cm:\\r\\n\\c\\\\ end\n\n\0")
    (message,) = await ann.messages(1)
    assert message.headers["n:m"] == "\r\n:\\ end"


async def test_the_bytes_of_escapes(node: Node) -> None:
    """What is written is the reverse of what is read, byte by byte."""
    async with connected(node) as peer:
        await peer.subscribe("/topic/a")
        peer.write(b"SEND\ndestination:/topic/a\ntimestamp:\\r\\n\\c\\\\\n\n\0")
        expected = (
            b"MESSAGE\nsubscription:0\ndestination:/topic/a\nmessage-id:t-1-1-0\n"
            b"timestamp:\\r\\n\\c\\\\\ncontent-length:0\n\n\0"
        )
        assert await peer.read(len(expected)) == expected


async def test_undefined_escapes(ann: Peer) -> None:
    r"""An undefined escape sequence such as \t MUST be treated as a fatal protocol error."""
    ann.write(b"SEND\ndestination:/topic/a\nx:\\t\n\n\0")
    assert "escape" in (await ann.error()).headers["message"]


async def test_no_trimming(ann: Peer) -> None:
    """Headers MUST never be trimmed or padded."""
    await ann.subscribe("/topic/a")
    ann.write(b"SEND\ndestination:/topic/a\n x :  y  \n\n\0")
    (message,) = await ann.messages(1)
    assert message.headers[" x "] == "  y  "


async def test_no_bodies(ann: Peer) -> None:
    """Frames other than SEND, MESSAGE and ERROR MUST NOT have a body: one that has is refused."""
    ann.write(b"BEGIN\ntransaction:1\n\nbody\0")
    assert "no body" in (await ann.error()).headers["message"]


async def test_content_length_on_other_frames(ann: Peer) -> None:
    """All frames MAY include a content-length header."""
    await ann.ask("BEGIN", transaction="1", content_length="0")


async def test_content_length_is_read(ann: Peer) -> None:
    """With content-length that number of octets MUST be read, NULs or not; and a frame whose body contains
    NULs MUST include one."""
    await ann.subscribe("/topic/a")
    ann.send("SEND", b"a\0b\0", destination="/topic/a", content_length="4")
    (message,) = await ann.messages(1)
    assert message.body == b"a\0b\0"
    assert message.headers["content-length"] == "4"


async def test_the_nul_after_a_counted_body(ann: Peer) -> None:
    """A frame with content-length still has to end with a NUL."""
    ann.write(b"SEND\ndestination:/topic/a\ncontent-length:1\n\nabc\0")
    assert "NUL" in (await ann.error()).headers["message"]


async def test_utf8(ann: Peer) -> None:
    """Servers MUST support UTF-8, in headers, names and bodies."""
    await ann.subscribe("/topic/grüße")
    await ann.ask("SEND", "zoë €".encode(), destination="/topic/grüße", ключ="значение")
    (message,) = await ann.messages(1)
    assert (message.headers["destination"], message.headers["ключ"]) == ("/topic/grüße", "значение")
    assert message.body.decode() == "zoë €"


async def test_repeated_headers(ann: Peer) -> None:
    """Of repeated headers the first is used."""
    await ann.subscribe("/topic/a")
    ann.write(b"SEND\ndestination:/topic/a\ndestination:/topic/b\nfoo:World\nfoo:Hello\n\n\0")
    (message,) = await ann.messages(1)
    assert message.headers["foo"] == "World"


async def test_size_limits(ann: Peer) -> None:
    """A frame over the limits is answered with an ERROR, and the connection is closed."""
    ann.write(b"SEND\ndestination:/topic/a\ncontent-length:99999999\n\n")
    assert "at most" in (await ann.error()).headers["message"]


async def test_clients_that_connect_and_disconnect_rapidly(node: Node) -> None:
    """Servers must support clients which rapidly connect and disconnect."""
    for _ in range(50):
        async with connected(node) as peer:
            peer.send("DISCONNECT", receipt="bye")
            assert await peer.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": "bye"})


# Connecting


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
async def test_stomp_is_connect(node: Node, command: str) -> None:
    """Servers MUST handle a STOMP frame in the same manner as a CONNECT frame."""
    async with stranger(node) as peer:
        peer.send(command, accept_version="1.2", host="localhost", login="me", passcode="secret")
        assert (await peer.expect("CONNECTED")).headers["version"] == "1.2"


async def test_connected(node: Node) -> None:
    """CONNECTED MUST have the version; `server` MUST begin with a name; the session is unique."""
    sessions = set()
    for _ in range(2):
        async with stranger(node) as peer:
            peer.send("CONNECT", accept_version="1.2", host="localhost")
            headers = (await peer.expect("CONNECTED")).headers
            assert headers["version"] == "1.2"
            assert headers["server"].startswith("nuncius/")
            sessions.add(headers["session"])
    assert len(sessions) == 2


async def test_connect_is_not_escaped(node: Node) -> None:
    """CONNECT frames do not escape: a backslash in one is a backslash."""
    async with stranger(node) as peer:
        peer.write(b"CONNECT\naccept-version:1.2\nhost:x\nlogin:a\\tb\\\n\n\0")
        await peer.expect("CONNECTED")


@pytest.mark.parametrize(
    ("offered", "chosen"), [("1.0,1.1,2.0", "1.1"), ("1.2,1.1,1.0", "1.2"), ("1.0", "1.0")]
)
async def test_negotiation(node: Node, offered: str, chosen: str) -> None:
    """The session uses the highest version that both sides have in common."""
    async with stranger(node) as peer:
        peer.send("CONNECT", accept_version=offered, host="localhost")
        assert (await peer.expect("CONNECTED")).headers["version"] == chosen


async def test_no_accept_version(node: Node) -> None:
    """A client that sends no accept-version supports only 1.0."""
    async with stranger(node) as peer:
        peer.send("CONNECT", login="me", passcode="secret")
        assert (await peer.expect("CONNECTED")).headers["version"] == "1.0"


async def test_no_common_version(node: Node) -> None:
    """Without a common version the server MUST answer with an ERROR and close the connection."""
    async with stranger(node) as peer:
        peer.send("CONNECT", accept_version="2.0,2.1", host="localhost")
        error = await peer.error()
        assert error.headers["version"] == "1.0,1.1,1.2"
        assert error.headers["content-type"] == "text/plain"
        assert error.body == b"Supported protocol versions are 1.0 1.1 1.2"


# Heart-beating


@pytest.mark.parametrize("wish", ["5", "a,b", "-1,0", "1,2,3", "", "1000000000000000000000,0"])
async def test_heart_beat_is_two_numbers(node: Node, wish: str) -> None:
    """The heart-beat header MUST contain two integers separated by a comma."""
    async with stranger(node) as peer:
        peer.send("CONNECT", accept_version="1.2", host="localhost", heart_beat=wish)
        assert "heart-beat" in (await peer.error()).headers["message"]


async def test_no_heart_beat(node: Node) -> None:
    """A missing heart-beat header MUST be treated as 0,0."""
    async with stranger(node) as peer:
        peer.send("CONNECT", accept_version="1.2", host="localhost")
        assert (await peer.expect("CONNECTED")).headers["heart-beat"] == "0,0"


async def test_heart_beats_are_sent(dsn: str) -> None:
    """Who agreed to send heart-beats MUST send new data at least that often: an end of line, if it has
    nothing else to send."""
    async with running_node(dsn, heart_beat_ms=100) as node, stranger(node) as peer:
        peer.write(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,300\n\n\0")
        connect = b""
        while not connect.endswith(b"\0"):
            connect += await peer.read(1)
        assert b"\nheart-beat:100,0\n" in connect
        loop = asyncio.get_running_loop()
        last = loop.time()
        for _ in range(4):
            assert await peer.read(1) == b"\n"
            assert loop.time() - last < 1.0  # 0.3 was promised; the machine may be busy
            last = loop.time()


# Client frames


async def test_unknown_frames(ann: Peer) -> None:
    """A frame that is not in the list is answered with an ERROR, and the connection is closed."""
    assert "PUBLISH" in await ann.refused("PUBLISH", destination="/topic/a")


async def test_send_needs_a_destination(ann: Peer) -> None:
    """SEND has one REQUIRED header, destination."""
    assert await ann.refused("SEND", b"x") == "SEND needs a header destination"


async def test_user_defined_headers(ann: Peer) -> None:
    """User defined headers MUST be passed through in the MESSAGE frame."""
    await ann.subscribe("/queue/a")
    headers = {"persistent": "true", "foo": "bar", "reply_to": "/queue/b", "content_type": "text/plain"}
    await ann.ask("SEND", b"x", destination="/queue/a", **headers)
    (message,) = await ann.messages(1)
    assert {"persistent", "foo", "reply-to", "content-type"} <= set(message.headers)
    assert message.headers["reply-to"] == "/queue/b"


async def test_send_that_fails(ann: Peer) -> None:
    """If a SEND cannot be processed, the server MUST send an ERROR and close the connection."""
    assert "destination" in await ann.refused("SEND", b"x", destination="/nowhere/a")


async def test_subscribe_that_fails(ann: Peer) -> None:
    """If a subscription cannot be created, the server MUST send an ERROR and close the connection."""
    assert "name" in await ann.refused("SUBSCRIBE", id="0", destination="/topic/")


async def test_subscribe_needs_a_destination(ann: Peer) -> None:
    """SUBSCRIBE requires a destination."""
    assert "destination" in await ann.refused("SUBSCRIBE", id="0")


async def test_subscribe_needs_an_id(ann: Peer) -> None:
    """An id header MUST be included in SUBSCRIBE."""
    assert "id" in await ann.refused("SUBSCRIBE", destination="/topic/a")


async def test_subscription_ids_differ(ann: Peer) -> None:
    """Within a connection different subscriptions MUST use different ids."""
    await ann.subscribe("/topic/a", id="7")
    assert "already" in await ann.refused("SUBSCRIBE", id="7", destination="/topic/b")


async def test_ack_modes(ann: Peer) -> None:
    """The valid values of ack are auto, client and client-individual."""
    assert "ack" in await ann.refused("SUBSCRIBE", id="0", destination="/topic/a", ack="later")


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
async def test_individual_acks(node: Node, ann: Peer, destination: str) -> None:
    """With client-individual an ACK or NACK for a later message MUST NOT acknowledge a previous one."""
    async with connected(node) as consumer:
        durable = {} if destination.startswith("/queue") else {"durable": "d"}
        await consumer.subscribe(destination, ack="client-individual", **durable)
        for body in (b"1", b"2"):
            await ann.ask("SEND", body, destination=destination)
        _, second = await consumer.messages(2)
        await consumer.ask("ACK", id=second.headers["ack"])
        await consumer.ask("UNSUBSCRIBE", id="0")
        await consumer.subscribe(destination, ack="client-individual", **durable)
        assert await consumer.bodies(1) == [b"1"]


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
async def test_cumulative_acks(node: Node, ann: Peer, destination: str) -> None:
    """With client an ACK is for its message and all messages sent to the subscription before it."""
    async with connected(node) as consumer:
        durable = {} if destination.startswith("/queue") else {"durable": "d"}
        await consumer.subscribe(destination, ack="client", **durable)
        for body in (b"1", b"2", b"3"):
            await ann.ask("SEND", body, destination=destination)
        _, second, _ = await consumer.messages(3)
        await consumer.ask("ACK", id=second.headers["ack"])
        await consumer.ask("UNSUBSCRIBE", id="0")
        await consumer.subscribe(destination, ack="client", **durable)
        assert await consumer.bodies(1) == [b"3"]


async def test_unsubscribe_needs_an_id(ann: Peer) -> None:
    """An id header MUST be included in UNSUBSCRIBE."""
    await ann.subscribe("/topic/a")
    assert "id" in await ann.refused("UNSUBSCRIBE", destination="/topic/a")


async def test_unsubscribe_needs_a_subscription(ann: Peer) -> None:
    """The id MUST match that of an existing subscription."""
    assert "no subscription" in await ann.refused("UNSUBSCRIBE", id="0")


async def test_unsubscribe_ends_the_messages(ann: Peer) -> None:
    """Once the subscription is removed, no messages come from it."""
    await ann.subscribe("/topic/a")
    await ann.ask("UNSUBSCRIBE", id="0")
    await ann.ask("SEND", b"x", destination="/topic/a")
    await ann.subscribe("/topic/b")
    await ann.ask("SEND", b"y", destination="/topic/b")
    assert await ann.bodies(1) == [b"y"]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
async def test_acks_need_an_id(ann: Peer, command: str) -> None:
    """ACK and NACK MUST include an id header."""
    assert "id" in await ann.refused(command, message_id="1", subscription="0")


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("wrong", ["1-99", "nothing", "", "7-1"])
async def test_acks_need_a_message(ann: Peer, command: str, wrong: str) -> None:
    """The id has to be the ack header of a MESSAGE that waits for an acknowledgement."""
    await ann.subscribe("/queue/a", ack="client")
    assert "acknowledgement" in await ann.refused(command, id=wrong)


async def test_nack_in_client_mode(node: Node, ann: Peer) -> None:
    """With client a NACK is for all messages sent before it and not yet ACKed or NACKed."""
    async with connected(node) as consumer:
        await consumer.subscribe("/queue/a", ack="client")
        for body in (b"1", b"2", b"3"):
            await ann.ask("SEND", body, destination="/queue/a")
        _, second, third = await consumer.messages(3)
        await consumer.ask("NACK", id=second.headers["ack"])
        await consumer.ask("ACK", id=third.headers["ack"])
        again = await consumer.messages(2)
        assert sorted(message.body for message in again) == [b"1", b"2"]
        assert {message.headers["attempt"] for message in again} == {"2"}


@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
async def test_transactions_have_names(ann: Peer, command: str) -> None:
    """The transaction header is REQUIRED."""
    assert "transaction" in await ann.refused(command)


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
async def test_unknown_transactions(ann: Peer, command: str) -> None:
    """COMMIT and ABORT MUST specify the identifier of a transaction in progress."""
    assert "no transaction" in await ann.refused(command, transaction="1")


async def test_transaction_names_differ(ann: Peer) -> None:
    """Within a connection different transactions MUST use different identifiers."""
    await ann.ask("BEGIN", transaction="1")
    assert "already" in await ann.refused("BEGIN", transaction="1")


async def test_nothing_after_disconnect(node: Node, ann: Peer, bob: Peer) -> None:
    """Clients MUST NOT send frames after DISCONNECT: those of one that does are not looked at."""
    del node
    await bob.subscribe("/topic/a")
    ann.write(b"DISCONNECT\nreceipt:77\n\n\0SEND\ndestination:/topic/a\nreceipt:78\n\nlate\0")
    assert await ann.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": "77"})
    await ann.closed()
    await bob.ask("SEND", b"other", destination="/topic/a")
    assert await bob.bodies(1) == [b"other"]


# Server frames


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a", "a"])
async def test_message(ann: Peer, ack: str, destination: str) -> None:
    """MESSAGE MUST have destination, a unique message-id and the subscription's id; and ack, if it has to be
    acknowledged."""
    await ann.subscribe(destination, id="my:sub", ack=ack)
    for body in (b"1", b"2"):
        ann.send("SEND", body, destination=destination)
    messages = await ann.messages(2)
    assert len({message.headers["message-id"] for message in messages}) == 2
    for message in messages:
        assert message.headers["destination"] == destination
        assert message.headers["subscription"] == "my:sub"
        assert ("ack" in message.headers) == (ack != "auto")


async def test_receipts(ann: Peer) -> None:
    """RECEIPT MUST include receipt-id, with the value of the receipt header; any frame but CONNECT may ask
    for one."""
    await ann.subscribe("/queue/a", ack="client-individual")
    await ann.ask("BEGIN", transaction="t")
    await ann.ask("SEND", b"1", destination="/queue/a", transaction="t")
    await ann.ask("COMMIT", transaction="t")
    await ann.ask("BEGIN", transaction="t")
    await ann.ask("ABORT", transaction="t")
    (message,) = await ann.messages(1)
    await ann.ask("NACK", id=message.headers["ack"])
    (message,) = await ann.messages(1)
    await ann.ask("ACK", id=message.headers["ack"])
    await ann.ask("UNSUBSCRIBE", id="0")
    ann.send("DISCONNECT", receipt="a:b\nc")
    assert await ann.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": "a:b\nc"})
    await ann.closed()


async def test_errors(ann: Peer) -> None:
    """After an ERROR the server MUST close the connection. The ERROR has a message, the receipt of the
    frame it is about, and a body with its length and MIME type."""
    ann.send("ACK", id="1-1", receipt="message-12345")
    error = await ann.error()
    assert error.headers["receipt-id"] == "message-12345"
    assert error.headers["message"] in error.body.decode()
    assert error.headers["content-type"] == "text/plain"
    assert error.headers["content-length"] == str(len(error.body))


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (b"SEND\ncontent-length:99999999999\nreceipt:1\n\nx", "at most"),
        (b"SEND\ncontent-length:1\nreceipt:1\n\nxy\0", "no NUL"),
        (b"SUBSCRIBE\nreceipt:1\n\nx\0", "no body"),
    ],
)
async def test_errors_about_a_frame_that_is_none(ann: Peer, rest: bytes, text: str) -> None:
    """If the frame included a receipt header, the ERROR SHOULD say which, also where only its headers can be
    read."""
    ann.write(rest)
    error = await ann.error()
    assert text in error.headers["message"]
    assert error.headers["receipt-id"] == "1"
