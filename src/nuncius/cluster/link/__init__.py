"""The connection between a node and a broker of the cluster."""
