"""A node's membership in the cluster, from before its listeners open until after they have closed."""

import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from nuncius.broker import Broker
from nuncius.cluster.balancer.balancer import Balancer
from nuncius.cluster.members import ClusterMember, ClusterMembers
from nuncius.cluster.role_names import BALANCER
from nuncius.cluster.roles import Participant
from nuncius.cluster.watching import Watch
from nuncius.node.node import Announce, Endpoint, Endpoints, NodeSettings, cannot_listen, warn_of_strangers
from nuncius.node.stopping import giving_up, stop_event
from nuncius.store.store import Store

log = logging.getLogger(__name__)


@asynccontextmanager
async def participating(broker: Broker, settings: NodeSettings) -> AsyncIterator[Participant]:
    """Connect the node with the other nodes of the cluster."""
    participant = Participant(
        broker,
        settings.roles,
        own_store=settings.own_store,
        link_port=settings.link_port,
        rebalance_after=settings.rebalance_after,
    )
    try:
        await participant.open(settings.host)
    except OSError as error:
        raise cannot_listen("link", settings.host, settings.link_port, error) from error
    try:
        yield participant
    finally:
        await participant.close()


@asynccontextmanager
async def entered(
    participant: Participant, settings: NodeSettings, endpoints: Endpoints
) -> AsyncIterator[Endpoints]:
    """Register the node with the cluster. If it is a balancer too, clients are sent to the balancer."""
    door = endpoints.get("http")
    await participant.enter(_address(settings), None if door is None else door.port)
    try:
        if BALANCER in settings.roles:
            async with _balancing(settings) as (balancer, port):
                participant.on_members, balancer.look = balancer.learn, participant.watch.look
                await participant.watch.look()
                yield {**endpoints, "http": Endpoint(settings.host, port), "manager": door}
        else:
            yield endpoints
    finally:
        await participant.leave()


async def serve_balancer(settings: NodeSettings, announce: Announce) -> None:
    """Run a node that is only a balancer, until it is told to stop."""
    stop = stop_event(on_leash=settings.on_leash)
    warn_of_strangers(settings.host)
    store = Store(settings.dsn, silence=settings.store_timeout)
    await store.open()
    try:
        async with giving_up(stop, store.give_up), _balancing(settings) as (balancer, port):

            async def heard(members: Sequence[ClusterMember]) -> None:
                balancer.learn(members)

            watch = Watch(ClusterMembers(store), heard)
            balancer.look = watch.look
            await watch.begin(_address(settings), port, 0, settings.roles)
            with announce({"http": Endpoint(settings.host, port)}):
                await stop.wait()
            log.info("stopping")
            await watch.end()
    finally:
        await store.close()


def _address(settings: NodeSettings) -> str:
    """Return the address for other nodes. A node that listens on all addresses is found by its host name."""
    if settings.advertise:
        return settings.advertise
    return socket.gethostname() if settings.host in {"", "0.0.0.0", "::"} else settings.host  # noqa: S104


@asynccontextmanager
async def _balancing(settings: NodeSettings) -> AsyncIterator[tuple[Balancer, int]]:
    balancer = Balancer(settings.max_connections, settings.queue_dialect)
    wanted = settings.balancer_port or 0
    try:
        port = await balancer.open(settings.host, wanted)
    except OSError as error:
        raise cannot_listen("http", settings.host, wanted, error) from error
    try:
        yield balancer, port
    finally:
        await balancer.close()
