"""The pages, each in a module of its own."""

from nuncius.console.pages import (
    clients,
    cluster,
    overview,
    pipelines,
    queue,
    queues,
    store,
    subscription,
    subscriptions,
    topic,
    topics,
)

EVERY_PAGE = (
    overview,
    queues,
    queue,
    topics,
    topic,
    subscriptions,
    subscription,
    clients,
    cluster,
    pipelines,
    store,
)
