"""Spark looks for modules named pyspark_* and registers their DefaultSource: this is how it finds ours."""

from nuncius.pipeline.source.source import NunciusSource as DefaultSource

__all__ = ["DefaultSource"]
