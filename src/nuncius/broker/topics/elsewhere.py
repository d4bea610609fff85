"""What the topics of a node ask of a cluster."""

from typing import Protocol

from nuncius.broker.topics.topic import Topic
from nuncius.store.calls.fetching import FetchCall
from nuncius.store.calls.publishing import PublishCall


class Elsewhere(Protocol):
    """What takes on entries that other nodes store or keep. In a cluster there is one."""

    def publish(self, call: PublishCall, topic: Topic) -> bool:
        """Whether it has taken the call on; if not, its entries belong here."""

    def fetch(self, call: FetchCall) -> bool:
        """Whether it has taken the call on."""

    def find(self, call: FetchCall) -> None:
        """Takes on a call whose entries are not here, contrary to what it knew."""
