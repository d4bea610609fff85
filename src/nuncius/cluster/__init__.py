"""Nodes that work together: roles, membership, placement of partitions, the ring."""
