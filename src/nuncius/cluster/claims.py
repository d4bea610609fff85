"""Record where entries with an identity were sent, for topics that are in several stores.

Each store knows only its own entries. If a retry went to another store than the first attempt (because the
topic has grown, or a broker was away), the entry would be stored twice. So the first decision is recorded in
the common store before anything is sent.
"""

from collections.abc import Callable, Sequence
from typing import Any

from nuncius.store.calls.publishing import PublishCall
from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection
from nuncius.store.queries import procedure
from nuncius.store.store import Store

SIZE = 200  # bytes of memory per call


class ClaimCall(Call):
    __slots__ = ("count", "partitions", "publisher_id", "topic_id")

    def __init__(
        self, done: Callable[[Any], None], publisher_id: int, topic_id: int, count: int, partitions: str
    ) -> None:
        super().__init__(done, None, None, 1, SIZE, True)
        self.publisher_id = publisher_id
        self.topic_id = topic_id
        self.count = count
        self.partitions = partitions


class PublishClaims:
    def __init__(self, store: Store) -> None:
        self._claiming = store.combiner("claim", _claim)

    def claim(self, call: PublishCall, done: Callable[[Any], None]) -> None:
        """Claim partitions for entries. `done` receives the partitions that the entries must go to, or an
        exception."""
        wanted = call.partitions
        text = str(wanted) if type(wanted) is int else ",".join(map(str, wanted))  # type: ignore[arg-type]

        def claimed(answer: Any) -> None:
            if isinstance(answer, Exception):
                done(answer)
                return
            numbers = [int(each) for each in answer.split(",")]
            if len(numbers) == 1:
                done(numbers[0])
            else:
                done(numbers if len(numbers) == call.rows else call.partitions)

        assert call.publisher_id is not None
        self._claiming.submit(ClaimCall(claimed, call.publisher_id, call.topic_id, call.count, text))


async def _claim(connection: Connection, calls: Sequence[ClaimCall], _: bool) -> list[Any]:
    answers: list[str] = await connection.fetchval(
        procedure("claim_many", 4),
        [call.publisher_id for call in calls],
        [call.topic_id for call in calls],
        [call.count for call in calls],
        [call.partitions for call in calls],
    )
    return answers
