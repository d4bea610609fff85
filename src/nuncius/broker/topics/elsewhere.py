"""The interface between the topics of a node and its cluster."""

from typing import Protocol

from nuncius.broker.topics.topic import Topic
from nuncius.store.calls.fetching import FetchCall
from nuncius.store.calls.publishing import PublishCall


class Elsewhere(Protocol):
    """Forwarder of calls for entries that other nodes store. A node has one if it is in a cluster."""

    def publish(self, call: PublishCall, topic: Topic) -> bool:
        """Take the call on. Return False if its entries belong to this node."""

    def fetch(self, call: FetchCall) -> bool:
        """Take the call on. Return False if this node has its entries."""

    def find(self, call: FetchCall) -> None:
        """Take on a call whose entries turned out not to be in this store."""
