"""What every page works with: the facts, the nodes, and the changes a visitor may make."""

from dataclasses import dataclass
from ipaddress import ip_address

from fastapi import Request

from nuncius.broker import Broker
from nuncius.broker.facts import Facts, Overview, alarms_of, worst_first
from nuncius.broker.facts_store import Advice
from nuncius.console.changes import Changes
from nuncius.console.nodes import Nodes
from nuncius.console.rates import Rates
from nuncius.console.shared import Shared
from nuncius.console.traffic import Traffic

OVERVIEW_SECONDS = 1.5
ALARM_SECONDS = 5.0
RESPITE = 30.0  # a large store is asked less often


class Console:
    def __init__(self, broker: Broker, *, read_only: bool = False) -> None:
        self.broker = broker
        self.read_only = read_only

    async def __aenter__(self) -> "Console":
        self.facts = Facts(self.broker)
        self.rates = Rates()
        self.nodes = Nodes(self.facts.cluster)
        self.traffic = Traffic(self.nodes)
        self.overview = Shared(self.facts.overview, OVERVIEW_SECONDS, RESPITE)
        self._advice = Shared(self._advise, ALARM_SECONDS, RESPITE)
        self.changes = Changes(self.broker, self.facts, self.nodes, read_only=self.read_only)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.nodes.close()

    async def alarms(self, overview: Overview) -> tuple[Advice, ...]:
        """List the alarms. Those with figures are of this overview, and agree with its cards."""
        return worst_first([*await self._advice(), *alarms_of(overview)])

    async def _advise(self) -> tuple[Advice, ...]:
        return (await self.facts.store.read()).advice()

    def visit(self, request: Request) -> "Visit":
        return Visit(self, visitor(request))


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at one page."""

    console: Console
    who: str


def visitor(request: Request) -> str:
    """Where a request came from. Who is on this machine may speak for others, as the node's door does."""
    peer = request.client.host if request.client else "unknown"
    told = request.headers.get("x-forwarded-for")
    try:
        is_here = ip_address(peer).is_loopback
    except ValueError:
        is_here = False
    return told if told and is_here else peer
