"""Consumer groups: several members share a subscription."""

from typing import Annotated

import msgspec

from nuncius.broker.delivery.shared import LONGEST_SESSION, SHORTEST_SESSION
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.exchange import Exchange
from nuncius.doors.http.v1.model import Name, Number, Offset, Time, V1Message, messages_in
from nuncius.doors.http.v1.subscriptions import Position, ReadQuery

PATH = "/v1/topics/{topic}/subscriptions/{subscription}/members"


class NewMember(msgspec.Struct, forbid_unknown_fields=True):
    """`session` is the number of seconds of silence after which the member counts as gone."""

    name: Name
    session: Annotated[float, msgspec.Meta(ge=SHORTEST_SESSION, le=LONGEST_SESSION)] = 30.0


class Joined(msgspec.Struct):
    member: int


class Member(msgspec.Struct):
    member: int
    name: str
    joined_at: Time
    last_seen: Time
    partitions: list[int]


class Members(msgspec.Struct):
    members: list[Member]


class Portion(msgspec.Struct):
    """Messages for a member, its partitions, and the generation to name when it confirms."""

    generation: int
    partitions: list[int]
    messages: list[V1Message]


class Confirmation(msgspec.Struct, forbid_unknown_fields=True):
    generation: Offset
    positions: Annotated[list[Position], msgspec.Meta(min_length=1, max_length=1000)]


@operation("GET", PATH)
async def list_members(desk: Desk, topic: Name, subscription: Name) -> Members:
    """The members of a subscription's group, and the partitions that each has."""
    await desk.broker.subscriptions.look_up(topic, subscription)
    found = await desk.broker.groups.members(topic, subscription)
    return Members([Member(m.member_id, m.name, m.joined_at, m.last_seen, [*m.partitions]) for m in found])


@operation("POST", PATH, status=201)
async def join_group(desk: Desk, topic: Name, subscription: Name, body: NewMember) -> Joined:
    """Become a member. Partitions are redistributed."""
    return Joined(await desk.broker.groups.join(topic, subscription, body.name, body.session))


@operation("DELETE", f"{PATH}/{{member}}", status=204)
async def leave_group(desk: Desk, topic: Name, subscription: Name, member: Number) -> None:
    """End a membership. Its partitions go to the other members."""
    await desk.broker.groups.check(member, topic, subscription)
    await desk.broker.groups.leave(member)


@operation("GET", f"{PATH}/{{member}}/messages", consumes=True)
async def read_as_member(
    desk: Desk, topic: Name, subscription: Name, member: Number, query: ReadQuery, exchange: Exchange
) -> Portion:
    """Messages of the member's partitions that are not confirmed yet. A request marks the previous batch as
    processed: partitions due to other members move to them."""
    await desk.broker.groups.check(member, topic, subscription)
    reading = desk.broker.groups.read(member, query.limit, query.wait, caller=exchange.caller)
    portion = await exchange.while_connected(reading) if query.wait else await reading
    return Portion(portion.generation, list(portion.partitions), messages_in(portion.entries))


@operation("POST", f"{PATH}/{{member}}/confirm", status=204)
async def confirm_as_member(
    desk: Desk, topic: Name, subscription: Name, member: Number, body: Confirmation
) -> None:
    """Confirm everything below these positions. Refused, with a conflict, if the member has not held a
    partition without interruption since that generation: its messages then go to another member."""
    await desk.broker.groups.check(member, topic, subscription)
    partitions = [each.partition for each in body.positions]
    positions = [each.position for each in body.positions]
    await desk.broker.groups.confirm(member, body.generation, partitions, positions)


@operation("POST", f"{PATH}/{{member}}/heartbeat", status=204)
async def heartbeat(desk: Desk, topic: Name, subscription: Name, member: Number) -> None:
    """Send a heartbeat: the member is alive, and busy."""
    await desk.broker.groups.check(member, topic, subscription)
    await desk.broker.groups.heartbeat(member)


OPERATIONS = (
    list_members,
    join_group,
    leave_group,
    read_as_member,
    confirm_as_member,
    heartbeat,
)
