"""The Spark sink: rows into topics and queues, each once."""
