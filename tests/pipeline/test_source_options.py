import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from nuncius.pipeline.errors import InvalidOption, InvalidSchema
from nuncius.pipeline.source import schema
from nuncius.pipeline.source.options import ReadOptions, parse
from nuncius.pipeline.source.positions import PartitionKey, decode, encode, share

STORE = "postgresql://nowhere/nuncius"


def batch(**options: str) -> ReadOptions:
    return parse({"store": STORE, "topic": "news", **options}, streaming=False)


def stream(**options: str) -> ReadOptions:
    return parse({"store": STORE, "topic": "news", **options}, streaming=True)


def test_without_options_everything_live_is_read() -> None:
    """A table or a stream has all that is there, and fails rather than skip what is gone."""
    for options in (batch(), stream()):
        assert (options.start, options.end, options.tier) == ("earliest", "latest", "live")
        assert (options.not_before, options.before, options.partitions) == (None, None, None)
        assert options.fail_on_data_loss
        assert not options.hold_retention
        assert options.rows_per_slice == 500_000
        assert options.rows_per_batch is None


def test_a_name_of_a_job() -> None:
    """A stream does not subscribe under a name that is reserved for jobs."""
    with pytest.raises(InvalidOption, match="for jobs"):
        stream(subscription="nuncius:archive")


def test_topics_are_a_list_of_names() -> None:
    """Names are separated by commas; blanks and repetitions do not count."""
    assert batch(topic=" b, a,b ,").topics == ("b", "a")


def test_names_of_options_have_no_case() -> None:
    """As everywhere in Spark."""
    parsed = parse(
        {"STORE": STORE, "TOPIC": "a", "rowsperslice": "7", "FailOnDataLoss": "False"}, streaming=False
    )
    assert (parsed.topics, parsed.rows_per_slice, parsed.fail_on_data_loss) == (("a",), 7, False)


def test_offsets_may_be_those_of_a_stream() -> None:
    """What a query's progress shows can be given back as it is: the id of a topic is left out."""
    parsed = batch(startingOffsets='{"news": {"id": 3, "1": 5}}', endingOffsets='{"news": {"1": 9}}')
    assert parsed.start == {"news": {1: 5}}
    assert parsed.end == {"news": {1: 9}}


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1700000000123", 1_700_000_000_123_000),
        ("-5", 0),
        ("2023-11-14T22:13:20.000123Z", 1_700_000_000_000_123),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000_000),
        ("0001-01-01T00:00:00+14:00", 0),
    ],
)
def test_times_are_milliseconds_or_iso_8601(text: str, microseconds: int) -> None:
    """A time without a zone is in UTC; nothing was published before 1970."""
    assert batch(startingTimestamp=text).not_before == microseconds


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topicPattern": "a"}, "either option 'topic' or option 'topicPattern'"),
        ({"topic": " , "}, "either option 'topic' or option 'topicPattern'"),
        ({"topic": "", "topicPattern": "a("}, "not a regular expression"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"zzz": "1"}, "unknown option 'zzz'; there are"),
        ({"maxRowsPerBatch": "1"}, "is for streams"),
        ({"startingOffsets": "latest"}, "'startingOffsets' is 'earliest', or JSON"),
        ({"startingOffsets": "[]"}, "JSON such as"),
        ({"startingOffsets": '{"news": 5}'}, "JSON such as"),
        ({"startingOffsets": '{"news": {"1": -1}}'}, "JSON such as"),
        ({"startingOffsets": '{"news": {"1": true}}'}, "JSON such as"),
        ({"startingOffsets": '{"news": {"one": 1}}'}, "JSON such as"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is 'latest', or JSON"),
        ({"startingTimestamp": "yesterday"}, "a time such as"),
        ({"startingTimestamp": "9" * 30}, "a time such as"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "is after"),
        ({"startingTimestamp": "2", "startingOffsets": "earliest"}, "exclude each other"),
        ({"endingTimestamp": "2", "endingOffsets": "latest"}, "exclude each other"),
        ({"partitions": "1,x"}, "numbers from 1 on"),
        ({"partitions": "0"}, "numbers from 1 on"),
        ({"rowsPerSlice": "0"}, "a number from 1 on"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"tier": "cloud"}, "live, lake or all"),
        ({"lake": "/lake"}, "set to 'lake' or 'all'"),
    ],
)
def test_bad_options_of_a_table_are_refused(options: dict[str, str], complaint: str) -> None:
    """The complaint names the option and what it may be."""
    with pytest.raises(InvalidOption, match=complaint):
        batch(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"endingOffsets": "latest"}, "is for batch reads"),
        ({"startingOffsets": "soon"}, "'earliest' or 'latest', or JSON"),
        ({"maxRowsPerBatch": "many"}, "a number from 1 on"),
        ({"holdRetention": "true"}, "needs a name to hold it under"),
        ({"subscription": "s", "partitions": "1"}, "for whole topics"),
    ],
)
def test_bad_options_of_a_stream_are_refused(options: dict[str, str], complaint: str) -> None:
    """The complaint names the option and what it may be."""
    with pytest.raises(InvalidOption, match=complaint):
        stream(**options)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ([StructField("colour", StringType())], "no column 'colour'"),
        ([StructField("offset", IntegerType())], "'offset' is bigint, not int"),
        ([], "at least one column"),
        ([StructField("key", StringType())] * 2, "each once"),
    ],
)
def test_a_schema_that_topics_do_not_have_is_refused(fields: list[StructField], complaint: str) -> None:
    """The complaint names the column, and what it is."""
    with pytest.raises(InvalidSchema, match=complaint):
        schema.check(StructType(fields))


def test_positions_have_one_text() -> None:
    """Spark compares offsets as text, so topics and partitions come in one order, by number."""
    a, b, c = PartitionKey("b", 2, 10), PartitionKey("b", 2, 9), PartitionKey("a", 7, 1)
    encoded = encode({a: 1, b: 2, c: 3})
    assert str(encoded) == "{'a': {'id': 7, '1': 3}, 'b': {'id': 2, '9': 2, '10': 1}}"
    assert decode(encoded) == {a: 1, b: 2, c: 3}


@pytest.mark.parametrize(
    ("rows", "waiting", "given"),
    [
        (9, [100, 100, 100], [3, 3, 3]),
        (10, [1, 100, 100], [1, 5, 4]),
        (100, [1, 2, 3], [1, 2, 3]),
        (2, [5, 1, 9, 0], [1, 0, 1, 0]),
        (0, [5], [0]),
    ],
)
def test_rows_are_shared_fairly(rows: int, waiting: list[int], given: list[int]) -> None:
    """Nobody gets more than it has, what one leaves the others get, and the longest queues come first."""
    places = [PartitionKey("t", 1, number) for number in range(1, len(waiting) + 1)]
    shared = share(rows, dict(zip(places, waiting, strict=True)))
    assert [shared[place] for place in places] == given
