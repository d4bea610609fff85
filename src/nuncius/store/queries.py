"""The statements besides the procedures: one file each in `store/sql/queries/`, named after what it does.

The first line of a file is a comment that says what the statement is for; the rest is the statement. Parts
that cannot be parameters, such as columns, stand there as `{name}`, and the caller fills them with `format`.

The call of one procedure needs no file, because the procedure has one: see `procedure`, and `Store.call`.
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


@cache
def procedure(name: str, arguments: int) -> str:
    """Return the statement that calls a procedure with so many arguments."""
    return f"select * from nuncius.{name}({', '.join(f'${n}' for n in range(1, arguments + 1))})"  # noqa: S608
