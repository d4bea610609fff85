"""All operations under /v1."""

from nuncius.doors.http import (
    connections,
    consumers,
    overview,
    ring,
    stats,
    v1_groups,
    v1_health,
    v1_leases,
    v1_queues,
    v1_subscriptions,
    v1_topics,
)

OPERATIONS = (
    *v1_topics.OPERATIONS,
    *v1_subscriptions.OPERATIONS,
    *v1_groups.OPERATIONS,
    *v1_queues.OPERATIONS,
    *v1_leases.OPERATIONS,
    *v1_health.OPERATIONS,
    *overview.OPERATIONS,
    *ring.OPERATIONS,
    *stats.OPERATIONS,
    *connections.OPERATIONS,
    *consumers.OPERATIONS,
)
