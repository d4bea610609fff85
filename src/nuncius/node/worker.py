"""One of several processes behind the same ports. The supervisor starts it, never a user."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from nuncius.node import child, listeners, logs, node
from nuncius.node.explaining import explain
from nuncius.node.node import Endpoints, NodeSettings


class WorkerOrders(msgspec.Struct, frozen=True):
    """Settings that the supervisor sends to a worker."""

    settings: NodeSettings
    log_level: str
    log_format: str
    sockets: dict[str, list[int]] = {}
    """Descriptors of the inherited listening sockets, by listener."""


class WorkerReport(msgspec.Struct, frozen=True):
    """A worker's report: its endpoints, or the error of its start."""

    endpoints: Endpoints | None = None
    error: str = ""


def main() -> int:
    orders = child.read_orders(WorkerOrders)
    logs.configure(orders.log_level, orders.log_format)
    try:
        node.run(orders.settings, _announce, listeners.inherited(orders.sockets))
    except Exception as error:
        logging.getLogger(__name__).debug("the worker failed", exc_info=True)
        child.report(WorkerReport(error=explain(error)))
        return 1
    return 0


@contextmanager
def _announce(endpoints: Endpoints) -> Iterator[None]:
    child.report(WorkerReport(endpoints))
    yield


if __name__ == "__main__":
    sys.exit(main())
