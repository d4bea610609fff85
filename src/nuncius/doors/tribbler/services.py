"""Services: methods by name, as in Go's RPC server."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Method:
    arguments: type[msgspec.Struct]
    call: Callable[[Any], Awaitable[msgspec.Struct]]
    """Coroutine function that returns the reply. Its exceptions are sent to the caller as errors."""
    reads: bool = False
    """True if answers may be large and the method never waits for leases of other clients. Such calls are
    limited by `Replies`."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    methods: Mapping[str, Method]


class UnknownMethod(Exception):
    """The method does not exist. The message is that of Go's server."""


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
