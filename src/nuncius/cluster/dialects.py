"""The dialects of the partitioned queue's API: what a message or a failure looks like in an answer.

The course set two assignments. Programs for the first answer a message as it is; those for the second, which
the report is about, put a sentence around it. Their clients print what they get.
"""

from enum import StrEnum


class Dialect(StrEnum):
    """How the HTTP API of the report answers."""

    AUTO = "auto"
    """A2 to a request that says `topic_name`, as the report's clients do; else A1."""
    A1 = "a1"
    A2 = "a2"

    @property
    def is_in_sentences(self) -> bool | None:
        """Whether requests are answered in sentences; None if that depends on each."""
        return None if self is Dialect.AUTO else self is Dialect.A2
