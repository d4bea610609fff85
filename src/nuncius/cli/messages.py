"""Commands that carry messages: into and out of queues, into and out of topics, there and back."""

import typer

from nuncius.cli import messages_queue, messages_request, messages_topic, messages_work, tail


def register(app: typer.Typer) -> None:
    for module in (messages_queue, messages_work, messages_topic, tail, messages_request):
        module.register(app)
