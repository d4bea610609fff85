"""The API of the partitioned queue's report."""
