"""Settings of a node in a ring."""

import msgspec


class RingSettings(msgspec.Struct, frozen=True):
    """A node's place in a ring. A node without settings is alone, and may share its store with others like
    it."""

    node_id: int = 0
    """0: a random id, kept over restarts."""
    count: int = 1
    """For the master: the number of nodes at the start of the ring."""
    master: str = ""
    """The address of the master; empty: this node."""
    ids: int = 1
    """Ids on the ring: more ids distribute the keys more evenly."""
    join: bool = False
    """The ring is running: take over a part of it."""
    caching: bool = True
    timelines_from: int = 200
    """Users who follow this many others get the pipeline's feed, if there is one."""
