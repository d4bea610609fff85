"""The ZeroMQ port. It acts as a ROUTER socket for REQ and DEALER sockets."""

from nuncius.doors.tcp import TcpDoor
from nuncius.doors.wire import Session, Wire
from nuncius.doors.zeromq.session import ZeromqSession


class ZeromqDoor(TcpDoor):
    name = "zeromq"

    def greet(self, wire: Wire) -> Session:
        return ZeromqSession(self._broker, wire)
