"""Clients: names with an id. Messages can be addressed to a client."""

from dataclasses import dataclass

import asyncpg

from nuncius.broker.errors import AlreadyExists, InvalidInput, NoSuchClient
from nuncius.broker.limits import check_int32, check_name
from nuncius.store.store import Store

FULL, READ_ONLY = 1, 2


@dataclass(frozen=True, slots=True)
class Client:
    client_id: int
    name: str
    mode: int = FULL


class Clients:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def register(self, name: str, mode: int = FULL) -> Client:
        check_name("client", name)
        if mode not in (FULL, READ_ONLY):
            raise InvalidInput("a client's mode is 1 (full) or 2 (read only)")
        try:
            rows = await self._store.call_once("request_id", name, mode)
        except asyncpg.UniqueViolationError:
            raise AlreadyExists(f"there is a client {name!r} already") from None
        return Client(rows[0][0], name, mode)

    async def identify(self, client_id: int) -> Client:
        check_int32("a client id", client_id)
        rows = await self._store.call("identify", client_id)
        if not rows:
            raise NoSuchClient(f"there is no client {client_id}")
        return Client(*rows[0])

    async def find(self, name: str) -> Client:
        check_name("client", name)
        rows = await self._store.call("find_clients", None, [name])
        if not rows:
            raise NoSuchClient(f"there is no client {name!r}")
        return Client(*rows[0])

    async def find_or_register(self, name: str, mode: int = FULL) -> Client:
        """Return the client of that name. Register it if it does not exist."""
        try:
            return await self.find(name)
        except NoSuchClient:
            pass
        try:
            return await self.register(name, mode)
        except AlreadyExists:
            return await self.find(name)

    async def delete(self, client_id: int) -> None:
        rows = await self._store.call_once("delete_client", client_id)
        if rows[0][0] is None:
            raise NoSuchClient(f"there is no client {client_id}")
