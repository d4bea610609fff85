"""Work beside the messages: duties, news from other nodes, wake-ups."""
