"""Commands for Spark jobs."""
