"""The client for synchronous programs: the methods of `AsyncClient`, each of which waits for its result.

An `AsyncClient` runs in a background thread; this class passes calls on and waits for results. Threads may
share a client, and throughput grows with the number of threads that publish at once: their messages share
packets and commits. A single thread gets the same effect with `publish_soon` and `put_soon`.
"""

from typing import Any

from nuncius.client.aio import TIMEOUT, AsyncClient
from nuncius.client.blocking.background import Background
from nuncius.client.blocking.queues import SyncQueueCalls
from nuncius.client.blocking.topics import SyncTopicCalls
from nuncius.client.connection.address import DEFAULT_URL


class Client(SyncTopicCalls, SyncQueueCalls):
    """A connection to a broker that reconnects by itself. Use it in a `with` block, or call `open` and
    `close`.

    Messages are counted under the `publisher` name, so that each is stored once even if it is sent again
    after a failure. By default that name is generated and used by this client only. With a name of your own,
    a restarted program continues its counts.
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
        """Return an open client. The options are those of the constructor."""
        client = cls(url, **options)
        client.open()
        return client

    def open(self) -> None:
        """Connect to a node. Raises CannotConnect if no node can be reached."""
        try:
            self._background.call(self._async.open)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the client and its subscriptions. Calls that still wait fail with Closed."""
        self._background.stop(self._async.close)

    def __enter__(self) -> "Client":
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def client_id(self) -> int:
        """Return this client's id at the broker, or 0 if it has none."""
        return self._async.client_id

    def find_client(self, name: str) -> int:
        """Return the id under which messages can be addressed to a client."""
        return self._background.call(self._async.find_client, name)

    def ping(self) -> float:
        """Measure the round trip to the node, in seconds."""
        return self._background.call(self._async.ping)

    def status(self) -> dict[str, Any]:
        """Return basic facts about the node and its store."""
        return self._background.call(self._async.status)
