"""The settings of the embedded server, each explained in docs/store.md.

They are written on every start, so that a new release can change them. A user's own settings go
into `user.conf`, which PostgreSQL reads after ours. Nothing here weakens durability.
"""

from pathlib import Path

FILE = "nuncius.conf"
USER_FILE = "user.conf"
INCLUDES = f"""
# Added by nuncius. Put your own settings in {USER_FILE}: it is read last and never overwritten.
include '{FILE}'
include_if_exists '{USER_FILE}'
"""

_FIXED = {
    # durability: explicit, although these are PostgreSQL's own defaults
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    # memory and connections
    "shared_buffers": "256MB",
    "max_connections": "500",
    "max_locks_per_transaction": "256",
    # write-ahead log
    "wal_buffers": "16MB",
    "min_wal_size": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    # vacuum
    "autovacuum_naptime": "10s",
    "autovacuum_vacuum_cost_delay": "2ms",
    "autovacuum_vacuum_cost_limit": "2000",
    # planning
    "jit": "off",
    "random_page_cost": "1.1",
    "effective_io_concurrency": "32",
    # log: one file per weekday, each overwritten a week later
    "logging_collector": "on",
    "log_directory": "log",
    "log_filename": "postgres-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%a ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def render(*, socket_dir: Path, tcp_port: int | None, lz4: bool) -> str:
    """Return the text of `nuncius.conf`."""
    settings = _FIXED | {
        "wal_compression": "lz4" if lz4 else "off",  # pglz costs more than it saves
        "default_toast_compression": "lz4" if lz4 else "pglz",
        "listen_addresses": "" if tcp_port is None else "127.0.0.1",
        "port": str(tcp_port or 5432),
        "password_encryption": "scram-sha-256",
        "unix_socket_directories": f'"{socket_dir}"',  # the quotes: it is a list, split at commas
        "unix_socket_permissions": "0700",
    }
    lines = ["# Written by nuncius on every start: changes are lost. Use user.conf instead."]
    lines += [f"{name} = {_quoted(value)}" for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
