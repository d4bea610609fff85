"""Which dialect a connection speaks: its first frame says so, or the one after that."""

import pytest

from doors.stomp.peer import Node, stranger
from nuncius.doors.stomp.frames.versions import Version

CONNECTED = b"CONNECTED\n\n\0"


async def test_a_login_and_a_passcode(node: Node) -> None:
    """A CONNECT that has more than a login is real STOMP, of version 1.0 if it does not say."""
    async with stranger(node) as peer:
        peer.write(b"CONNECT\nlogin:me\npasscode:x\n\n\0")
        connected_frame = await peer.expect("CONNECTED")
        assert connected_frame.headers["version"] == "1.0"
        assert connected_frame.headers["session"]


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        (b"SEND\ndestination:/topic/a\nreceipt:1\ncontent-length:3\n\n\0\n\0\0", "RECEIPT"),
        (b"SUBSCRIBE\ndestination:/topic/a\nack:auto\nreceipt:1\n\n\0", "RECEIPT"),
        (b"DISCONNECT\nreceipt:1\n\n\0", "RECEIPT"),
        (b"BEGIN\ntransaction:1\nreceipt:1\n\n\0", "RECEIPT"),
        (b"UNSUBSCRIBE\nid:1\nreceipt:1\n\n\0", "ERROR"),
    ],
)
async def test_a_login_and_nothing_else(node: Node, frame: bytes, answer: str) -> None:
    """A client of STOMP 1.0 that begins as one of the slim dialect would is known by its next frame."""
    for cut in range(len(frame)):
        async with stranger(node, Version.V10) as peer:
            peer.write(b"CONNECT\nlogin:me\n\n\0" + frame[:cut])
            assert await peer.read(len(CONNECTED)) == CONNECTED
            peer.write(frame[cut:])
            assert (await peer.expect(answer)).headers["receipt-id"] == "1"


async def test_a_subscriber_of_1_0_with_a_login(node: Node) -> None:
    """It goes on as in any other session of STOMP 1.0."""
    async with stranger(node, Version.V10) as peer:
        peer.write(b"CONNECT\nlogin:me\n\n\0")
        assert await peer.read(len(CONNECTED)) == CONNECTED
        await peer.ask("SUBSCRIBE", destination="/queue/a", ack="client")
        await peer.ask("SEND", b"x", destination="/queue/a")
        (message,) = await peer.messages(1)
        assert (message.headers["destination"], message.body) == ("/queue/a", b"x")
        await peer.ask("ACK", message_id=message.headers["message-id"])
