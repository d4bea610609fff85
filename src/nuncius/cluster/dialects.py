"""The dialects of the partitioned queue's API: the form of a message or a failure in an answer.

The course set two assignments. Programs for the first return a message as it is; those for the second, which
the report describes, put a sentence around it. Their clients print what they get.
"""

from enum import StrEnum


class QueueDialect(StrEnum):
    """The form in which the HTTP API of the report answers."""

    AUTO = "auto"
    """A2 for a request that contains `topic_name`, as the report's clients send it; otherwise A1."""
    A1 = "a1"
    A2 = "a2"

    @property
    def is_in_sentences(self) -> bool | None:
        """True if requests are answered in sentences; None if that depends on the request."""
        return None if self is QueueDialect.AUTO else self is QueueDialect.A2
