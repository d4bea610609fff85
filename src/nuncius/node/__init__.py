"""A running node: settings, assembly of listeners on a broker, workers, console process, logs, ready file."""
