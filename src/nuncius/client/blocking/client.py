"""The client for programs without asyncio: the verbs of `AsyncClient`, each of which waits.

An `AsyncClient` runs in a thread of its own; this class only passes calls on and waits for results. Any
number of threads may share a client, and the more of them publish at once, the better it goes: what they
hand in together travels together. One thread alone gets the same with `publish_soon` and `put_soon`.
"""

from typing import Any

from nuncius.client.aio import TIMEOUT, AsyncClient
from nuncius.client.blocking.background import Background
from nuncius.client.blocking.queues import SyncQueueCalls
from nuncius.client.blocking.topics import SyncTopicCalls
from nuncius.client.connection.address import DEFAULT_URL


class Client(SyncTopicCalls, SyncQueueCalls):
    """A connection to a broker that repairs itself. Use it in a `with` block, or `open` and `close` it.

    Messages are counted under the `publisher` name, so that each is stored once, whatever breaks and is
    sent again. By default that name is made up and means nothing after this client is closed; a name of
    your own lets a restarted program go on counting where it stopped.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        name: str = "",
        publisher: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        self._async = AsyncClient(url, name=name, publisher=publisher, timeout=timeout)
        self._background = Background()

    @classmethod
    def connect(cls, url: str = DEFAULT_URL, **options: Any) -> "Client":
        client = cls(url, **options)
        client.open()
        return client

    def open(self) -> None:
        try:
            self._background.call(self._async.open)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._background.stop(self._async.close)

    def __enter__(self) -> "Client":
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def client_id(self) -> int:
        return self._async.client_id

    def find_client(self, name: str) -> int:
        """The id under which messages can be addressed to a client."""
        return self._background.call(self._async.find_client, name)

    def ping(self) -> float:
        """Seconds to the node and back."""
        return self._background.call(self._async.ping)

    def status(self) -> dict[str, Any]:
        """A few facts about node and store."""
        return self._background.call(self._async.status)
