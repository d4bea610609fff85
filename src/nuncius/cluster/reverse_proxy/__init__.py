"""Pass HTTP requests on to other servers: the balancer to managers, a node to its console."""
