"""Where in a ring a node is to be."""

import msgspec


class RingSettings(msgspec.Struct, frozen=True):
    """A node's place in a ring. A node without them is alone, and may share its store with others like it."""

    node_id: int = 0
    """0: any, the same again after a restart."""
    count: int = 1
    """How many nodes the ring begins with; for the master."""
    master: str = ""
    """Where the master is; empty: here."""
    ids: int = 1
    """Ids on the ring: more of them share out the keys more evenly."""
    join: bool = False
    """The ring is running: take over a part of it."""
    caching: bool = True
    timelines_from: int = 200
    """Users who follow so many get the pipeline's feed, where there is one."""
