"""Publishers: names under which messages are counted."""

from nuncius.broker.errors import InvalidInput, KeyReused
from nuncius.broker.limits import check_name
from nuncius.broker.topics.topic import Publisher
from nuncius.store.store import Store


class Publishers:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, name: str, *, lasting: bool) -> Publisher:
        """Return the publisher of that name. It is forgotten after a day of silence, unless `lasting`."""
        check_name("publisher", name)
        rows = await self._store.call("ensure_publishers", [name], lasting)
        return Publisher(rows[0][0], name)

    async def claim(self, name: str, fingerprint: bytes) -> Publisher:
        """Return the publisher of a single request. The name stands for the first request that claims it:
        KeyReused if that one had another fingerprint. It is forgotten after a day of silence."""
        check_name("publisher", name)
        rows = await self._store.call("claim_publisher", name, fingerprint)
        publisher_id, claimed = rows[0]
        if claimed is not None and claimed != fingerprint:
            raise KeyReused("this key was sent before, with another request")
        return Publisher(publisher_id, name)

    async def last_count(self, publisher: str, kind: str, name: str) -> int:
        """Return the last count of a publisher in the topic or queue of that name."""
        if kind not in ("topic", "queue"):
            raise InvalidInput("counts are kept for a 'topic' or a 'queue'")
        rows = await self._store.call("last_count", publisher, kind, name)
        count: int = rows[0][0]
        return count
