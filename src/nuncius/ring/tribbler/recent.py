"""Recent posts of all nodes, cached on this node and updated for each feed.

Every tribble is an entry of its owner's topic. This node asks each node for the entries after those it knows:
one small request per node, for any number of users in a feed, and no post from before the request is missed.
The cache is bounded; a position too far back, or in a deleted topic, is not answered from it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set

import msgspec

from nuncius.ring.tribbler.feed import top
from nuncius.ring.tribbler.model import LIMIT, Reference
from nuncius.ring.tribbler.timelines import Positions

WINDOW = 100_000
"""The maximum number of tribbles cached per node."""
PORTION = 5_000
"""The maximum number of tribbles in one answer."""
STRIDE = 500
"""The number of tribbles searched at a time."""


class Posts(msgspec.Struct, frozen=True):
    """A node's answer: for each partition of its topic, the posts from a start on. `more` tells that others
    follow. If `starts` are later than requested, retention has dropped the posts between. `topic` identifies
    the topic among all stores: the store's name, a dash, and a number."""

    topic: str
    starts: list[int]
    counts: list[int]
    users: list[str]
    posted: list[int]
    more: bool


Ask = Callable[[str, list[int] | None], Awaitable[Posts]]
"""Asks a node for the posts from these offsets on, or, with None, only for the name of its topic."""


class _Tail:
    """Consecutive posts of one partition."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.posts: list[Reference] = []
        self._newest: list[int] = []
        """For each post, the newest up to it. Mostly that is the post itself, but a slow process may store
        after a faster one."""

    @property
    def next(self) -> int:
        return self.start + len(self.posts)

    def add(self, start: int, posts: Sequence[Reference]) -> None:
        """Append posts that follow the known ones. Another request may have added some of them already."""
        if start <= self.next:
            newest = self._newest[-1] if self._newest else 0
            for post in posts[self.next - start :]:
                newest = min(newest, post[0])
                self.posts.append(post)
                self._newest.append(newest)

    def shorten(self, most: int) -> None:
        drop = len(self.posts) - most
        if drop > 0:
            del self.posts[:drop], self._newest[:drop]
            self.start += drop

    def top(self, start: int, users: Set[str]) -> list[Reference]:
        """Return the newest of these users' posts from an offset on, searched from the latest backwards."""
        best: list[Reference] = []
        first, end = max(start - self.start, 0), len(self.posts)
        while end > first and not (len(best) == LIMIT and best[-1][0] < self._newest[end - 1]):
            begin = max(end - STRIDE, first)
            found = [post for post in self.posts[begin:end] if post[1] in users]
            if found:
                best = top([*best, *found])
            end = begin
        return best


class _Node:
    def __init__(self, name: str, ask: Ask) -> None:
        self._name = name
        self._ask = ask
        self._topic: str | None = None
        self._tails: list[_Tail] = []

    async def top(self, at: Mapping[str, Sequence[int]], users: Set[str]) -> list[Reference] | None:
        if self._topic is None:
            self._topic = (await self._ask(self._name, None)).topic
        wanted = at.get(self._topic)
        if wanted is None:
            if any(_store_of(each) == _store_of(self._topic) for each in at):
                # The position is in an earlier topic, or in a later one that is unknown here.
                self._topic = None
                return None
            wanted = ()
        tails = self._tails
        if not tails or not all(tail.start <= _of(wanted, n) <= tail.next for n, tail in enumerate(tails)):
            tails = [_Tail(start) for start in wanted]
        more = True
        while more:
            answer = await self._ask(self._name, [tail.next for tail in tails])
            if answer.topic != self._topic:
                self._topic, self._tails = None, []
                return None
            if not self._take(tails, answer):
                return None
            more = answer.more
            if sum(len(tail.posts) for tail in tails) > WINDOW + PORTION:
                return None
        if any(_of(wanted, n) < tail.start for n, tail in enumerate(tails)):
            return None  # shortened meanwhile by another request
        found = [post for n, tail in enumerate(tails) for post in tail.top(_of(wanted, n), users)]
        for tail in tails:
            tail.shorten(WINDOW // len(tails))
        self._tails = tails
        return found

    @staticmethod
    def _take(tails: list[_Tail], answer: Posts) -> bool:
        """Add an answer. Return False if posts before it are missing."""
        posts: Iterator[Reference] = zip(map(int.__neg__, answer.posted), answer.users, strict=True)
        for n, (start, count) in enumerate(zip(answer.starts, answer.counts, strict=True)):
            if n == len(tails):
                tails.append(_Tail(0))
            if start > tails[n].next:
                return False
            tails[n].add(start, [next(posts) for _ in range(count)])
        return True


class Recent:
    def __init__(self, names: Callable[[], Sequence[str]], ask: Ask) -> None:
        self._names = names
        self._ask = ask
        self._known: dict[str, _Node] = {}

    async def top(self, at: Positions, users: Set[str]) -> list[Reference] | None:
        """Return the newest of these users' posts after this position, or None if they are unknown or too
        many."""
        names = self._names()
        self._known = {name: self._known.get(name) or _Node(name, self._ask) for name in names}
        answers = await asyncio.gather(*(node.top(at, users) for node in self._known.values()))
        found: list[Reference] = []
        for answer in answers:
            if answer is None:
                return None
            found += answer
        return top(found)


def _store_of(topic: str) -> str:
    return topic.rpartition("-")[0]


def _of(positions: Sequence[int], partition: int) -> int:
    return positions[partition] if partition < len(positions) else 0
