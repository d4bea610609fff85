"""The state behind every page: facts, nodes, and the changes that a visitor may make."""

from dataclasses import dataclass

from fastapi import Request

from nuncius.broker import Broker
from nuncius.broker.observe.facts import Facts, Overview
from nuncius.broker.observe.findings import Finding, problems
from nuncius.cluster.proxies import Proxies
from nuncius.console.changes import Changes
from nuncius.console.nodes import NodeClient
from nuncius.console.rates import CounterRates
from nuncius.console.shared import Shared
from nuncius.console.traffic import Traffic

OVERVIEW_SECONDS = 1.5
ALARM_SECONDS = 5.0
RESPITE = 30.0  # pause after a read of the store, in multiples of its duration


class Console:
    def __init__(self, broker: Broker, *, read_only: bool = False, proxies: Proxies | None = None) -> None:
        self.broker = broker
        self.proxies = proxies or Proxies()
        self.read_only = read_only

    async def __aenter__(self) -> "Console":
        self.facts = Facts(self.broker)
        self.rates = CounterRates()
        self.nodes = NodeClient(self.facts.cluster)
        self.traffic = Traffic(self.nodes)
        self.overview = Shared(self.facts.overview, OVERVIEW_SECONDS, RESPITE)
        self._store = Shared(self.facts.store, ALARM_SECONDS, RESPITE)
        self.changes = Changes(self.broker, self.facts, self.nodes, read_only=self.read_only)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.nodes.close()

    async def alarms(self, overview: Overview) -> tuple[Finding, ...]:
        """List the alarms. Those with figures are computed from this overview, so they agree with its
        cards."""
        return problems([*(await self._store()).findings(), *overview.findings()])

    def visit(self, request: Request) -> "Visit":
        return Visit(self, visitor(request, self.proxies))


@dataclass(frozen=True, slots=True)
class Visit:
    """One view of one page by a visitor."""

    console: Console
    who: str


def visitor(request: Request, proxies: Proxies) -> str:
    """Name the visitor of a request: by address, and by user if a trusted proxy has named one."""
    peer = request.client.host if request.client else None
    headers = dict(request.scope["headers"])
    address, user = proxies.client(peer, headers), proxies.user(peer, headers)
    return f"{user} ({address})" if user else address
