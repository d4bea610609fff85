"""The entry point for Spark, which imports modules named pyspark_* and registers their DefaultSource."""

from nuncius.pipeline.source.source import NunciusSource as DefaultSource

__all__ = ["DefaultSource"]
