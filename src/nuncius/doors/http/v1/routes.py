"""All operations under /v1."""

from nuncius.doors.http import ring
from nuncius.doors.http.v1 import groups as v1_groups
from nuncius.doors.http.v1 import health as v1_health
from nuncius.doors.http.v1 import leases as v1_leases
from nuncius.doors.http.v1 import queues as v1_queues
from nuncius.doors.http.v1 import subscriptions as v1_subscriptions
from nuncius.doors.http.v1 import topics as v1_topics
from nuncius.doors.http.watching import connections, consumers, overview, stats

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
