"""The Spark source: topics as batches and streams of rows."""
