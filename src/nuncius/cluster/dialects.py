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

    def is_sentences(self, says_topic_name: bool) -> bool:
        """Return whether a request is answered in sentences."""
        return says_topic_name if self is Dialect.AUTO else self is Dialect.A2
