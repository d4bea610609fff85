"""Names for asyncpg's types: generic to the type checker, plain classes when the program runs."""

from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool

__all__ = ["Connection", "Pool"]
