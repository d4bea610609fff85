"""Send a connection's answers in the order of its frames.

Frames are carried out concurrently, through different combiners, but answered in order. So a RECEIPT confirms
its frame and every frame before it, and an ERROR comes after the receipts of all frames that succeeded before
it.
"""

from collections import deque

from nuncius.doors.stomp.carrier import Carrier


class Answer:
    """The answer to one frame: nothing, a RECEIPT, or a last ERROR."""

    __slots__ = ("cost", "data", "is_last", "is_ready")

    def __init__(self, data: bytes, cost: int) -> None:
        self.data = data
        self.cost = cost
        self.is_last = False  # the connection ends after it
        self.is_ready = False


class Answers:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        carrier.on_end = self._end_with_the_last
        self._owed: deque[Answer] = deque()
        self.are_over = False

    def owe(self, data: bytes, cost: int) -> Answer:
        """Add the answer to a frame of about that size."""
        answer = Answer(data, cost)
        self._owed.append(answer)
        self._carrier.accept(cost)
        return answer

    def give(self, answer: Answer, data: bytes | None = None) -> None:
        """Complete an answer: its frame was carried out."""
        if data is not None:
            answer.data = data
        self._settle(answer)

    def end(self, answer: Answer, data: bytes) -> None:
        """Complete an answer and close the connection after it."""
        answer.data = data
        answer.is_last = True
        self._settle(answer)

    def _end_with_the_last(self) -> bool:
        """Mark the newest answer as the last: the client has closed its side, as a shell pipeline does, but
        may still read."""
        if self._owed:
            self._owed[-1].is_last = True
        return bool(self._owed)

    def _settle(self, answer: Answer) -> None:
        answer.is_ready = True
        self._carrier.answered(answer.cost)
        owed = self._owed
        while owed and owed[0].is_ready and not self.are_over:
            first = owed.popleft()
            if first.data:
                self._carrier.send(first.data)
            if first.is_last:
                self.are_over = True
                self._carrier.close()
