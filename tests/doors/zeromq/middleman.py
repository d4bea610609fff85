"""A ZeroMQ socket between clients and a node that loses answers, or requests, on purpose."""

import threading
from types import TracebackType
from typing import Self

import zmq


class Middleman:
    """Passes requests on one by one. Set `lose_answers` or `lose_requests` to how many are to get lost."""

    def __init__(self, port: int) -> None:
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self.url = f"tcp://127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.lose_answers = 0
        self.lose_requests = 0
        self.requests: list[list[bytes]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._context.term()

    def _run(self) -> None:
        back = self._context.socket(zmq.REQ)
        back.connect(f"tcp://127.0.0.1:{self._port}")
        while not self._stop.is_set():
            if not self._front.poll(20):
                continue
            sender, empty, *request = self._front.recv_multipart()
            self.requests.append(request)
            if self.lose_requests:
                self.lose_requests -= 1
                continue
            back.send_multipart(request)
            answer = back.recv_multipart()
            if self.lose_answers:
                self.lose_answers -= 1
            else:
                self._front.send_multipart([sender, empty, *answer])
        back.close(linger=0)
        self._front.close(linger=0)
