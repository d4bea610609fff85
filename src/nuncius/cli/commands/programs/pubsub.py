"""`nuncius pubsub`: reliable publish/subscribe over ZeroMQ, one command or an interactive session."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nuncius.cli import output
from nuncius.cli.connection import StreamOutput
from nuncius.cli.errors import INTERRUPTED, NOTHING, exit_code, explain
from nuncius.cli.output import StreamFormat
from nuncius.client.errors import InvalidInput, NunciusError
from nuncius.store import environment

if TYPE_CHECKING:
    from nuncius.client.zeromq import Message, PubSubClient

URL = "tcp://127.0.0.1:5555"
HISTORY = 1000  # lines
HELP = """\
subscribe TOPIC        get what is put into a topic from now on
unsubscribe TOPIC      and no more; what is pending is dropped
get TOPIC [SECONDS]    the next message of a topic; wait for it so long
put TOPIC TEXT         put a message into a topic
topics                 what this client is subscribed to
history                what was said so far, also in earlier conversations
help                   this
exit                   leave (so does Ctrl-D)"""


def register(app: typer.Typer) -> None:
    app.command()(pubsub)


def pubsub(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT_ID", help="The name to be known by.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="subscribe TOPIC, unsubscribe TOPIC, get TOPIC [SECONDS] or put TOPIC TEXT. "
            "Without one, commands are read line by line.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str, typer.Option("--url", envvar=environment.ZEROMQ, help="Where the ZeroMQ door is.")
    ] = URL,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where state files lie. Default: nuncius/pubsub in the user's state directory.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds to wait for an answer.")] = 2.5,
    tries: Annotated[int, typer.Option(min=1, help="How often to ask before giving up.")] = 10,
    form: StreamOutput = StreamFormat.TEXT,
) -> None:
    """Put and get messages exactly once, over crashes of either side. What the client has put and got is in
    its state file; get exits with 3 when there is nothing."""
    from nuncius.client.zeromq import PubSubClient
    from nuncius.client.zeromq_state import default_directory

    directory = state or default_directory()
    with PubSubClient(client_id, url, directory=directory, timeout=timeout, tries=tries) as client:
        talk = Talk(client, form)
        if words:
            code = talk.obey(words[0], [*words[1:2], *([" ".join(words[2:])] if words[2:] else [])])
        else:
            code = talk.converse(directory / "history")
    if code:
        raise typer.Exit(code)


class Talk:
    """An interpreter of commands, each of which returns an exit code."""

    def __init__(self, client: "PubSubClient", form: StreamFormat) -> None:
        self._client = client
        self._form = form
        self._lines: deque[str] = deque(maxlen=HISTORY)
        self._verbs: dict[str, tuple[Callable[..., int | None], int, int]] = {
            "subscribe": (self._subscribe, 1, 1),
            "unsubscribe": (self._unsubscribe, 1, 1),
            "get": (self._get, 1, 2),
            "put": (self._put, 2, 2),
            "topics": (self._topics, 0, 0),
            "history": (self._history, 0, 0),
            "help": (self._help, 0, 0),
        }

    def obey(self, verb: str, arguments: list[str]) -> int:
        if verb not in self._verbs:
            raise InvalidInput(f"there is no command {verb!r}; 'help' lists those there are")
        work, least, most = self._verbs[verb]
        if not least <= len(arguments) <= most:
            usage = next(line for line in HELP.splitlines() if line.startswith(verb))
            raise InvalidInput(f"say: {usage.split('  ')[0]}")
        return work(*arguments) or 0

    def converse(self, history: Path) -> int:
        """Execute one command a line until the input ends. Errors are reported and do not end the session."""
        code = 0
        is_person = sys.stdin.isatty()
        for line in _lines_of_a_person(history, self._lines) if is_person else _lines_of_a_script():
            verb, *rest = line.split(maxsplit=1) or [""]
            if verb in {"exit", "quit"}:
                break
            if not verb:
                continue
            self._lines.append(line)
            try:
                arguments = rest[0].rstrip("\r\n").split(maxsplit=1) if rest else []
                failed = self.obey(verb, arguments)
            except KeyboardInterrupt:
                if not is_person:
                    raise
                _say("")
                failed = INTERRUPTED
            except NunciusError as error:
                sys.stderr.write(f"{explain(error)}\n")
                failed = exit_code(error)
            code = failed or code
        return 0 if is_person else code

    def _subscribe(self, topic: str) -> None:
        _say(f"subscribed; the latest message is {self._client.subscribe(topic)}")

    def _unsubscribe(self, topic: str) -> None:
        self._client.unsubscribe(topic)
        _say("unsubscribed")

    def _get(self, topic: str, seconds: str = "0") -> int:
        try:
            wait = float(seconds)
        except ValueError:
            raise InvalidInput(f"{seconds!r} is no number of seconds") from None
        with self._client.receive(topic, wait) as message:
            if message is None:
                sys.stderr.write("nothing new\n")
                return NOTHING
            self._show(message)  # before it counts as received: it may be shown twice, but is never lost
        return 0

    def _show(self, message: "Message") -> None:
        if self._form is StreamFormat.RAW:
            sys.stdout.flush()
            sys.stdout.buffer.write(message.body + b"\n")
        elif self._form is StreamFormat.JSON:
            text = output.decoded(message.body)
            body: dict[str, Any] = {"body_base64": message.body} if text is None else {"body": text}
            output.write(output.json_line({"topic": message.topic, "id": message.id, **body}))
        else:
            output.write(output.body_text(message.body))
        sys.stdout.flush()

    def _put(self, topic: str, text: str) -> None:
        readers = self._client.put(topic, text.encode(errors="surrogateescape"))
        if readers is None:
            _say("stored")
        else:
            _say(f"stored, for {readers} subscriber{'' if readers == 1 else 's'}")

    def _topics(self) -> None:
        rows = [(topic, last) for topic, last in sorted(self._client.subscriptions.items())]
        output.write_table(("topic", "last message"), rows, empty="not subscribed to anything")

    def _history(self) -> None:
        for line in self._lines:
            output.write(output.printable(line.strip()))
        sys.stdout.flush()

    def _help(self) -> None:
        _say(HELP)


def _say(text: str) -> None:
    for line in text.split("\n"):
        output.write(line)
    sys.stdout.flush()


def _lines_of_a_script() -> Iterator[str]:
    """Read lines of standard input. Bytes that are not UTF-8 are kept, as in arguments."""
    for line in sys.stdin.buffer:
        yield line.decode(errors="surrogateescape")


def _lines_of_a_person(history: Path, earlier: deque[str]) -> Iterator[str]:
    """Read lines at a prompt, with the history of this and earlier sessions."""
    import readline

    if history.exists():
        readline.read_history_file(history)
    known = range(1, readline.get_current_history_length() + 1)
    earlier.extend(filter(None, map(readline.get_history_item, known)))
    readline.set_history_length(HISTORY)
    _say("help lists the commands.")
    try:
        while True:
            try:
                yield input("> ")
            except KeyboardInterrupt:
                _say("")
            except EOFError:
                _say("")
                return
    finally:
        readline.write_history_file(history)
