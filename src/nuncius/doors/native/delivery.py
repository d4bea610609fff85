"""Deliver entries to subscriptions over the native protocol: one task per attached subscription, none per
entry."""

import asyncio
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.broker.errors import InvalidInput, NotFound
from nuncius.broker.model import Cursor, Subscription
from nuncius.doors.native.convert import wire_entries
from nuncius.doors.native.errors import error_packet
from nuncius.doors.wire import Wire
from nuncius.wire import codec as native
from nuncius.wire import packets
from nuncius.wire.packets import Packet

BATCH = 2000  # entries per packet, at most
MAX_ATTACHED = 1000  # subscriptions per connection, at most


class _Delivery:
    """One attached subscription."""

    def __init__(self, request: int, credit: int) -> None:
        self.request = request
        self.credit = credit
        self.credited = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Deliveries:
    def __init__(self, broker: Broker, wire: Wire) -> None:
        self._broker = broker
        self._wire = wire
        self._deliveries: dict[int, _Delivery] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._background = BackgroundWork()

    async def attach(self, packet: packets.Attach) -> Packet:
        if packet.request in self._deliveries or packet.credit < 1:
            raise InvalidInput("attach with a new request id and a credit of at least 1")
        if len(self._deliveries) >= MAX_ATTACHED:
            raise InvalidInput(f"a connection attaches to at most {MAX_ATTACHED} subscriptions")
        delivery = self._deliveries[packet.request] = _Delivery(packet.request, packet.credit)
        try:
            self._subscriptions.pop((packet.topic, packet.subscriber), None)  # it may have been replaced
            subscription = await self._find(packet)
            cursor = await self._broker.subscriptions.cursor(subscription)
        except BaseException:
            self._drop(delivery)
            raise
        if self._deliveries.get(packet.request) is delivery:  # not detached meanwhile
            answering = asyncio.current_task()
            assert answering is not None
            delivery.task = asyncio.get_running_loop().create_task(
                self._deliver(delivery, cursor, answering, subscription.subscription_id)
            )
        return packets.Done(packet.request)

    def _drop(self, delivery: _Delivery) -> None:
        if self._deliveries.get(delivery.request) is delivery:
            del self._deliveries[delivery.request]

    async def detach(self, packet: packets.Detach) -> Packet:
        delivery = self._deliveries.pop(packet.attached, None)
        if delivery is not None and delivery.task is not None:
            delivery.task.cancel()
        return packets.Done(packet.request)

    def credit(self, request: int, entries: int) -> None:
        delivery = self._deliveries.get(request)
        if delivery is not None and entries > 0:
            delivery.credit += entries
            delivery.credited.set()

    def confirm(self, packet: packets.Confirm, cost: int) -> None:
        subscription = self._subscriptions.get((packet.topic, packet.subscriber))
        answer = partial(self._confirmed, packet.request, cost)
        if (
            subscription is None
            or packet.subscription not in (0, subscription.subscription_id)
            or packet.partition > len(subscription.topic.partition_ids)
        ):
            self._background.start(self._confirm_later(packet, answer))
        else:
            self._confirm(subscription, packet, answer)

    async def _confirm_later(self, packet: packets.Confirm, answer: Any) -> None:
        self._subscriptions.pop((packet.topic, packet.subscriber), None)
        try:
            self._confirm(await self._find(packet), packet, answer)
        except Exception as error:
            answer(error)

    def _confirm(self, subscription: Subscription, packet: packets.Confirm, answer: Any) -> None:
        self._broker.positions.confirm_soon(
            subscription, packet.partition, packet.position, answer, caller=self._wire.caller
        )

    def _confirmed(self, request: int, cost: int, result: Exception | None) -> None:
        answer: Packet = packets.Done(request)
        if result is not None:
            self._subscriptions.clear()  # the cached subscription may have been deleted
            answer = error_packet(request, result)
        self._wire.answer(native.encode(answer), cost)

    async def _find(self, packet: packets.Attach | packets.Confirm) -> Subscription:
        name = packet.topic, packet.subscriber
        known = self._subscriptions.get(name)
        if known is None:
            known = self._subscriptions[name] = await self._broker.subscriptions.find(*name)
        if packet.subscription not in (0, known.subscription_id):
            raise NotFound(f"the subscription of {packet.subscriber!r} to topic {packet.topic!r} has ended")
        return known

    def close(self) -> None:
        for delivery in self._deliveries.values():
            if delivery.task is not None:
                delivery.task.cancel()
        self._deliveries.clear()

    async def _deliver(
        self, delivery: _Delivery, cursor: Cursor, answering: "asyncio.Task[Packet]", subscription_id: int
    ) -> None:
        with self._broker.consumers.of_subscription(subscription_id):
            try:
                await asyncio.wait([answering])  # entries come after the answer to Attach
                while True:
                    while delivery.credit <= 0:
                        delivery.credited.clear()
                        await delivery.credited.wait()
                    found = await cursor.next(
                        min(BATCH, delivery.credit), self._wire.caller, self._wire.replies
                    )
                    delivery.credit -= found.end - found.start
                    answer = wire_entries(delivery.request, found.partition, found.entries)
                    self._wire.send(native.encode(answer))
            except Exception as error:
                self._drop(delivery)
                self._wire.send(native.encode(error_packet(delivery.request, error)))
