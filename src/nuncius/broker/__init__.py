"""The domain: clients, queues, topics, subscriptions. Doors call the facade, `Broker`."""

from nuncius.broker.broker import Broker

__all__ = ["Broker"]
