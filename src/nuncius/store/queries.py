"""Load SQL statements from `store/sql/queries/`: one file a statement, named after what it does.

The first line of a file is a comment that says what the statement is for; the rest is the statement.
"""

import importlib.resources
from functools import cache

FOLDER = ("sql", "queries")


@cache
def query(subject: str, name: str) -> str:
    """Return the statement in the file of that name, in the subject's folder."""
    path = importlib.resources.files("nuncius.store").joinpath(*FOLDER, subject, f"{name}.sql")
    comment, statement = path.read_text(encoding="utf-8").split("\n", 1)
    if not comment.startswith("-- "):
        raise ValueError(f"the first line of {subject}/{name}.sql does not say what it is for")
    return statement.strip().removesuffix(";")
