"""The roles that a node can have."""

BALANCER, WRITER, READER, BROKER = "balancer", "writer", "reader", "broker"
ROLES = (BALANCER, WRITER, READER, BROKER)
ALL_IN_ONE = (WRITER, READER, BROKER)  # such a node needs no balancer
