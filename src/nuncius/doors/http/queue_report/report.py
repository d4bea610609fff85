"""The report's API: producers and consumers with a number, one message at a time.

Every failure of an endpoint is a 400 with a text that the authors' and the course's clients know. Only if the
store does not answer it is a 503 of the same form.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable

import msgspec

from nuncius.broker.background.actors import (
    MAX_ID,
    PRODUCER,
    NoSuchConsumer,
    NoSuchProducer,
    NumberedConsumer,
)
from nuncius.broker.errors import (
    AlreadyExists,
    BrokerError,
    CallFailed,
    NotFound,
    StoreError,
)
from nuncius.cluster.dialects import QueueDialect
from nuncius.cluster.members import NoSuchBroker
from nuncius.doors.http import identity
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.exchange import Exchange, Headers
from nuncius.doors.http.queue_report.fields import Fields, ReportRefused, number, partition, read, text

SUCCESS = b'{"status":"success"}'
TOPIC_EXISTS = "Topic already exists"
NO_TOPIC = "Topic doesn't exist"
NO_PRODUCER = "Invalid ProducerId"
NOT_ITS_TOPIC = "ProducerId is not subscribed to the topic"
NO_CONSUMER = "Invalid ConsumerId"
NOT_SUBSCRIBED = "ConsumerId is not subscribed to the topic"
NOTHING_LEFT = "No messages left to retrieve"
NO_BROKER = "Invalid BrokerId"
MAX_PORT = 65535
BASE64 = "base64"

REASONS: dict[type[Exception], str] = {
    AlreadyExists: TOPIC_EXISTS,
    NoSuchProducer: NO_PRODUCER,
    NoSuchConsumer: NO_CONSUMER,
    NoSuchBroker: NO_BROKER,
}

_encode = msgspec.json.Encoder().encode
Endpoint = Callable[[Exchange], Awaitable[None]]


class ReportApi:
    def __init__(self, desk: Desk, dialect: QueueDialect = QueueDialect.AUTO) -> None:
        self._desk = desk
        self._sentences = dialect.is_in_sentences
        self._broker = desk.broker
        self._producers = desk.broker.actors.producers
        self._consumers = desk.broker.actors.consumers
        self.endpoints: dict[bytes, dict[str, Endpoint]] = {
            path: {method: self._guarded(work) for method, work in methods.items()}
            for path, methods in {
                b"/topics": {"POST": self.create_topic, "GET": self.list_topics},
                b"/producer/register": {"POST": self.register_producer},
                b"/producer/produce": {"POST": self.produce},
                b"/consumer/register": {"POST": self.register_consumer},
                b"/consumer/consume": {"GET": self.consume, "POST": self.consume},
                b"/size": {"GET": self.size},
                b"/broker": {"POST": self.add_broker},
                b"/broker/remove": {"DELETE": self.remove_broker, "POST": self.remove_broker},
                b"/partition": {"POST": self.add_partition},
            }.items()
        }

    def _guarded(self, work: Callable[[Exchange, Fields], Awaitable[None]]) -> Endpoint:
        most = self._desk.max_request

        async def endpoint(exchange: Exchange) -> None:
            try:
                await work(exchange, await read(exchange, most))
            except (ReportRefused, BrokerError, CallFailed) as error:
                missing = NO_TOPIC if isinstance(error, NotFound) else str(error)
                await refuse(exchange, REASONS.get(type(error), missing))
            except StoreError as error:
                await refuse(exchange, str(error), 503)

        return endpoint

    # Topics

    async def create_topic(self, exchange: Exchange, fields: Fields) -> None:
        name = text(fields.name) if fields.name is not None else fields.topic_of()
        await self._broker.topics.create(name, caller=exchange.caller)
        await succeed(exchange, message=f"Topic {name} created successfully")

    async def list_topics(self, exchange: Exchange, fields: Fields) -> None:
        del fields
        topics = await self._broker.actors.topics()
        await succeed(exchange, topics=topics, message=topics)  # some clients read one, some the other

    async def add_partition(self, exchange: Exchange, fields: Fields) -> None:
        topic = fields.topic_of()
        partitions = len((await self._broker.topics.existing(topic)).partition_ids) + 1
        await self._broker.topics.grow(topic, partitions, caller=exchange.caller)
        message = f"Partition {topic}.{partitions} added to topic {topic}"
        await succeed(exchange, message=message, partitions=partitions)

    # Producers

    async def register_producer(self, exchange: Exchange, fields: Fields) -> None:
        topic = fields.topic_of()
        producer = (await self._broker.actors.register_producer(topic)).producer_id
        message = f"Producer ID {producer} registered for topic {topic}"
        await succeed(exchange, producer_id=producer, message=message)

    async def produce(self, exchange: Exchange, fields: Fields) -> None:
        topic = fields.topic_of()
        producer_id = number(fields.producer_id, NO_PRODUCER)
        body = (fields.message if type(fields.message) is str else text(fields.message)).encode()
        producer = self._producers.known(str(producer_id)) or await self._producers.find(_name(producer_id))
        if producer.topic != topic:
            raise ReportRefused(NOT_ITS_TOPIC)
        self._broker.actors.touch(PRODUCER, producer_id)
        key = identity.check(exchange.header(identity.HEADER))
        chosen = partition(fields.partition, topic)
        if key is None:
            await self._desk.publish(topic, (body,), partition=chosen, caller=exchange.caller)
        else:
            publisher = await self._desk.identity(key, (body, chosen), "producer", str(producer_id))
            await self._desk.publish(
                topic, (body,), partition=chosen, publisher=publisher, caller=exchange.caller
            )
        if fields.says_topic_name if self._sentences is None else self._sentences:
            await succeed(exchange, message=f"Producer ID {producer_id} published in topic {topic}")
        else:
            await exchange.answer(200, SUCCESS)

    # Consumers

    async def register_consumer(self, exchange: Exchange, fields: Fields) -> None:
        topic = fields.topic_of()
        consumer = await self._broker.actors.register_consumer(topic)
        if consumer is None:
            raise ReportRefused(NO_TOPIC)
        message = f"Consumer ID {consumer} subscribed to topic {topic}"
        await succeed(exchange, consumer_id=consumer, message=message)

    async def consume(self, exchange: Exchange, fields: Fields) -> None:
        if fields.encoding not in (None, "utf-8", BASE64):
            raise ReportRefused("encoding is utf-8 or base64")
        consumer = await self._consumer(fields)
        key = identity.check(exchange.header(identity.HEADER))
        body = await self._broker.consuming.consume(consumer, key=key, caller=exchange.caller)
        if body is None:
            raise ReportRefused(NOTHING_LEFT)
        as_base64 = fields.encoding == BASE64
        message = b64encode(body).decode() if as_base64 else body.decode(errors="replace")
        if fields.says_topic_name if self._sentences is None else self._sentences:
            message = (
                f"Consumer ID {consumer.consumer_id} retrieved message from topic {consumer.topic}: {message}"
            )
        await succeed(exchange, message=message)

    async def size(self, exchange: Exchange, fields: Fields) -> None:
        consumer = await self._consumer(fields)
        await succeed(exchange, size=await self._broker.actors.size(consumer))

    async def _consumer(self, fields: Fields) -> NumberedConsumer:
        topic = fields.topic_of()
        consumer_id = number(fields.consumer_id, NO_CONSUMER)
        consumer = self._consumers.known(str(consumer_id)) or await self._consumers.find(_name(consumer_id))
        if consumer.topic != topic:
            raise ReportRefused(NOT_SUBSCRIBED)
        return consumer

    # Brokers

    async def add_broker(self, exchange: Exchange, fields: Fields) -> None:
        port = number(fields.port, "Invalid port")
        if not 0 < port <= MAX_PORT:
            raise ReportRefused("Invalid port")
        broker = await self._desk.members.add_broker(port)
        await succeed(exchange, broker_id=broker, message=f"Broker ID {broker} created successfully")

    async def remove_broker(self, exchange: Exchange, fields: Fields) -> None:
        broker = number(fields.broker_id, NO_BROKER)
        await self._desk.members.remove_broker(broker if broker <= MAX_ID else 0)
        await succeed(exchange, message=f"Broker {broker} removed")


def _name(actor_id: int) -> str:
    return str(actor_id) if 0 < actor_id <= MAX_ID else "0"


async def succeed(exchange: Exchange, **fields: object) -> None:
    await exchange.answer(200, _encode({"status": "success", **fields}))


async def refuse(exchange: Exchange, message: str, status: int = 400, headers: Headers = ()) -> None:
    await exchange.answer(status, failure(message), headers=headers)


def failure(message: str) -> bytes:
    """Return the body of an answer that is an error."""
    return _encode({"status": "failure", "message": message})
