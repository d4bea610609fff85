"""The Spark sink: rows into topics and queues, exactly once."""
