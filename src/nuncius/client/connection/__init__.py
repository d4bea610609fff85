"""The connection to a node: requests in flight, counted and repeated."""
