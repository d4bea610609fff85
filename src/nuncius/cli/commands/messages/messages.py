"""Commands that send and receive messages: queues, topics, requests and replies."""

import typer

from nuncius.cli.commands.messages import queue as messages_queue
from nuncius.cli.commands.messages import request as messages_request
from nuncius.cli.commands.messages import tail
from nuncius.cli.commands.messages import topic as messages_topic
from nuncius.cli.commands.messages import work as messages_work


def register(app: typer.Typer) -> None:
    for module in (messages_queue, messages_work, messages_topic, tail, messages_request):
        module.register(app)
