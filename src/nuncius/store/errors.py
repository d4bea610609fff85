"""Errors of a store. Every message says what to do about it."""


class StoreError(Exception):
    """Base of the errors that the store raises itself."""


class DataDirectoryError(StoreError):
    """The data directory cannot be used by this program."""


class ServerStartError(StoreError):
    """The embedded server did not start or stop."""


class UnsupportedServer(StoreError):
    """The PostgreSQL server is too old, behind an unsuitable pooler, or the database has another encoding."""


class DatabaseTooNew(StoreError):
    """The database was migrated by a newer program than this one."""


class StoreUnavailable(StoreError):
    """The store did not answer within the time that callers wait; nothing was stored."""


class OutcomeUnknown(StoreError):
    """The connection broke during the call. The call may or may not have been carried out."""


class CallFailed(StoreError):
    """The store refused the call; nothing was stored."""
