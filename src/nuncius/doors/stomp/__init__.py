"""STOMP 1.0, 1.1 and 1.2, and the slim dialect of the STOMP broker's report."""
