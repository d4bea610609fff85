"""Publish calls that wait until the node knows their topic, and later calls of the same caller.

Entries of one caller for several topics are stored in the order of arrival. So calls for a known topic do
not overtake the same caller's earlier calls for a topic that is being looked up.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from nuncius.broker.caller import Caller
from nuncius.broker.names import Names
from nuncius.broker.topics.topic import Topic
from nuncius.store.calls.publishing import PublishCall

Submit = Callable[[PublishCall, Topic | Exception], None]


class _Waiting:
    """A call, and its topic as soon as it is known, or the error of the look-up."""

    __slots__ = ("call", "topic")

    def __init__(self, call: PublishCall) -> None:
        self.call = call
        self.topic: Topic | Exception | None = None


class PublishLines:
    def __init__(self, names: Names[Topic], submit: Submit) -> None:
        self._names = names
        self._submit = submit
        self.lines: dict[Caller, deque[_Waiting]] = {}
        """By caller: calls that wait, and all later ones."""

    def enter(self, call: PublishCall) -> None:
        """Submit a call when its topic is known and the same caller's earlier calls are submitted."""
        line = self.lines.get(call.caller)
        if line is None:
            known = self._names.known(call.topic_name)
            if known is not None:
                self._submit(call, known)
                return
            line = self.lines[call.caller] = deque()
        waiting = _Waiting(call)
        line.append(waiting)
        self._names.when_known(call.topic_name, partial(self._found, line, waiting))

    def _found(self, line: deque[_Waiting], waiting: _Waiting, topic: Topic | Exception) -> None:
        waiting.topic = topic
        while line and (found := line[0].topic) is not None:
            first = line.popleft()
            if not line:
                del self.lines[first.call.caller]
            self._submit(first.call, found)
