"""Combine equal takes of one turn of the loop into one request.

Twenty tasks that each wait for a message of a queue are one request for up to twenty messages, which costs
little more than one. Tasks left without a message keep waiting, again as one request.
"""

import asyncio
from functools import partial
from typing import Any

from nuncius.client.connection.requester import Requester
from nuncius.wire import packets

MAX_TOGETHER = 100

Question = tuple[str, int, int, int, float, float]
"""Queue, mode, sender, context, seconds to wait for a message, seconds for the request itself."""
Taking = asyncio.Future[packets.Message | None]


class _Party:
    """Takes that wait for the answer to one request."""

    __slots__ = ("deadline", "question", "request", "takings", "withdrawn")

    def __init__(self, question: Question, deadline: float) -> None:
        self.question = question
        self.deadline = deadline  # end of the wait, by the loop's clock
        self.takings: list[Taking] = []
        self.request = 0  # 0 until it is sent
        self.withdrawn = False


class Takers:
    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._parties: dict[Question, _Party] = {}  # of this turn of the loop

    async def take(self, question: Question) -> packets.Message | None:
        loop = asyncio.get_running_loop()
        party = self._parties.get(question)
        if party is None or len(party.takings) >= MAX_TOGETHER:
            if not self._parties:
                loop.call_soon(self._flush)
            elif party is not None:
                self._send(party)
            party = self._parties[question] = _Party(question, loop.time() + question[4])
        taking: Taking = loop.create_future()
        party.takings.append(taking)
        try:
            return await taking
        except asyncio.CancelledError:
            self._left(party)
            raise

    def _flush(self) -> None:
        parties, self._parties = self._parties, {}
        for party in parties.values():
            self._send(party)

    def _send(self, party: _Party) -> None:
        party.takings = [taking for taking in party.takings if not taking.done()]
        if party.takings:
            party.request = self._requester.next_request()
            packet = self._packet(party)
            timeout = party.question[5] + packet.wait_ms / 1000
            party.withdrawn = False
            done = partial(self._answered, party)
            self._requester.submit(packet, done, timeout, repeatable=True)

    def _packet(self, party: _Party) -> packets.Take:
        queue, mode, sender, context, _, _ = party.question
        wait = max(0.0, party.deadline - asyncio.get_running_loop().time())
        limit = len(party.takings)
        return packets.Take(party.request, queue, limit, mode, sender, context, int(wait * 1000))

    def _left(self, party: _Party) -> None:
        """Withdraw the request after a take was cancelled, so that it takes no message for it. The node
        answers at once, and the remaining takes ask again."""
        waiting = [taking for taking in party.takings if not taking.done()]
        if party.request and len(waiting) < len(party.takings):
            party.takings = waiting
            rest = self._packet(party) if party.takings else None
            party.withdrawn |= self._requester.withdraw(party.request, rest)

    def _answered(self, party: _Party, answer: Any) -> None:
        waiting = [taking for taking in party.takings if not taking.done()]
        if isinstance(answer, Exception):
            for taking in waiting:
                taking.set_exception(answer)
            return
        for taking, message in zip(waiting, answer.messages, strict=False):
            taking.set_result(message)
        party.takings = waiting[len(answer.messages) :]
        if party.withdrawn or answer.messages:
            self._send(
                party
            )  # an answer is limited in bytes: there may be more messages, also for takes that do not wait
            return
        for taking in party.takings:
            taking.set_result(None)
