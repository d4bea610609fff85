"""Background work: duties, notifications from other nodes, wake-ups."""
