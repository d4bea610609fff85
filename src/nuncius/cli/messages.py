"""Commands that carry messages: into and out of queues, into and out of topics, there and back."""

import typer

from nuncius.cli import messages_queue, messages_request, messages_topic, tail


def register(app: typer.Typer) -> None:
    for module in (messages_queue, messages_topic, tail, messages_request):
        module.register(app)
