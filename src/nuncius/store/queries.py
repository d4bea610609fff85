"""Load SQL statements from `store/sql/queries/`: one file a statement, named after what it does.

The first line of a file is a comment that says what the statement is for; the rest is the statement. Parts
that cannot be parameters, such as columns, stand there as `{name}`, and the caller fills them with `format`.
"""

import pkgutil
from functools import cache


@cache
def query(subject: str, name: str) -> str:
    """Return the statement in the file of that name, in the subject's folder."""
    # Not importlib.resources: from a zip file, as on Spark's executors, it takes 40 times as long.
    text = pkgutil.get_data("nuncius.store", f"sql/queries/{subject}/{name}.sql") or b""
    comment, _, statement = text.decode().partition("\n")
    if not comment.startswith("-- "):
        raise ValueError(f"the first line of {subject}/{name}.sql does not say what it is for")
    return statement.strip().removesuffix(";")
