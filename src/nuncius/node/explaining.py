"""Explain to a user why a process failed."""

from nuncius.node.logs import escape


def explain(error: BaseException, also_expected: tuple[type[BaseException], ...] = ()) -> str:
    """Return the error as one line. An error whose message was not written for users is internal."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, (*_expected(), *also_expected)):
        text = f"internal error: {type(error).__name__}: {text} (NUNCIUS_DEBUG=1 shows more)"
    return escape(text)


def _expected() -> tuple[type[BaseException], ...]:
    import asyncpg

    from nuncius.doors.telesto.trace import TraceUnavailable
    from nuncius.node.node import NodeError
    from nuncius.store.errors import StoreError

    return (
        NodeError,
        StoreError,
        TraceUnavailable,
        OSError,
        TimeoutError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    )
