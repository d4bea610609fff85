"""Jobs as a user writes them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


def shout(entries: DataFrame, *, mark: str = "!") -> DataFrame:
    """Says everything louder.

    With a function that workers call.
    """

    @sf.udf(returnType="string", useArrow=False)
    def loud(text: str) -> str:
        return _louder(text) + mark

    return entries.select("key", loud(sf.col("value").cast("string")).alias("value"))


def _louder(text: str) -> str:
    return text.upper()


def sizes(entries: DataFrame) -> DataFrame:
    return entries.select("offset", sf.length("value").alias("size"))


def broken(entries: DataFrame) -> DataFrame:
    return entries.select("offset", sf.expr("assert_true(length(value) < 3, 'too long')"))


NOT_A_FUNCTION = 7
