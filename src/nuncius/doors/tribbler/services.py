"""Services: methods under names, as Go's RPC server has them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Method:
    arguments: type[msgspec.Struct]
    call: Callable[[Any], Awaitable[msgspec.Struct]]
    """Gets the arguments, answers with the reply. What it raises is the caller's error."""
    reads: bool = False
    """Its answers may be large, and it waits for nobody's leases: calls take turns."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    methods: Mapping[str, Method]


class UnknownMethod(Exception):
    """The message is what Go's own server says."""


class Services:
    def __init__(self, services: Iterable[Service]) -> None:
        self._services = {service.name: service.methods for service in services}

    def find(self, name: str) -> Method:
        service, dot, method = name.rpartition(".")
        if not dot:
            raise UnknownMethod(f"rpc: service/method request ill-formed: {name}")
        methods = self._services.get(service)
        if methods is None:
            raise UnknownMethod(f"rpc: can't find service {name}")
        found = methods.get(method)
        if found is None:
            raise UnknownMethod(f"rpc: can't find method {name}")
        return found
