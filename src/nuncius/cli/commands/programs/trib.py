"""`nuncius trib`: the commands of Tribbler's own client."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.commands.nodes.ringing import NODE, TIMEOUT, Node, as_json, ask
from nuncius.cli.connection import Output, Timeout
from nuncius.cli.output import Format
from nuncius.client.errors import AlreadyExists, NotFound, NunciusError

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="The other user's name.")]

OK, NO_SUCH_USER, NO_SUCH_TARGET, EXISTS = range(4)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Tribbler: users, whom they follow, and what they say.", no_args_is_help=True)
    for command in (uc, sl, sa, sr, tl, tp, ts):
        group.command()(command)
    app.add_typer(group, name="trib")


def uc(user: User, node: Node = NODE, timeout: Timeout = TIMEOUT) -> None:
    """Create a user."""
    from nuncius.doors.tribbler.tribserver_messages import CreateUserArgs, StatusReply

    reply = ask(node, timeout, "Tribserver.CreateUser", CreateUserArgs(user), StatusReply)
    if reply.status == EXISTS:
        raise AlreadyExists(f"there is a user {user!r} already")
    _check(reply.status, user)
    _say(f"user {user} is made")


def sl(user: User, node: Node = NODE, timeout: Timeout = TIMEOUT, form: Output = Format.TABLE) -> None:
    """List whom a user follows."""
    from nuncius.doors.tribbler.tribserver_messages import GetSubscriptionsArgs, GetSubscriptionsReply

    asked = GetSubscriptionsArgs(user)
    reply = ask(node, timeout, "Tribserver.GetSubscriptions", asked, GetSubscriptionsReply)
    _check(reply.status, user)
    if form is Format.JSON:
        output.write_document([as_json(name) for name in reply.userids])
        return
    for name in reply.userids:
        _say(name)
    if not reply.userids:
        _say(f"{user} follows no one")


def sa(user: User, target: Target, node: Node = NODE, timeout: Timeout = TIMEOUT) -> None:
    """Let a user follow another."""
    status = _subscription("AddSubscription", user, target, node, timeout)
    if status == EXISTS:
        raise AlreadyExists(f"{user} follows {target} already")
    _check(status, user, f"there is no user {target!r}; make it with: nuncius trib uc")
    _say(f"{user} follows {target}")


def sr(user: User, target: Target, node: Node = NODE, timeout: Timeout = TIMEOUT) -> None:
    """Let a user not follow another any more."""
    status = _subscription("RemoveSubscription", user, target, node, timeout)
    _check(status, user, f"{user} does not follow {target}")
    _say(f"{user} does not follow {target} any more")


def tp(
    user: User,
    words: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What the user says.")],
    node: Node = NODE,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Post a tribble."""
    from nuncius.doors.tribbler.tribserver_messages import PostTribbleArgs, StatusReply

    asked = PostTribbleArgs(user, " ".join(words))
    _check(ask(node, timeout, "Tribserver.PostTribble", asked, StatusReply).status, user)
    _say("posted")


def tl(user: User, node: Node = NODE, timeout: Timeout = TIMEOUT, form: Output = Format.TABLE) -> None:
    """Show a user's tribbles, the newest first."""
    _tribbles("GetTribbles", user, node, timeout, form, f"{user} has not said anything")


def ts(user: User, node: Node = NODE, timeout: Timeout = TIMEOUT, form: Output = Format.TABLE) -> None:
    """Show the tribbles of all whom a user follows, the newest first."""
    nothing = f"no user whom {user} follows has said anything"
    _tribbles("GetTribblesBySubscription", user, node, timeout, form, nothing)


def _subscription(method: str, user: str, target: str, node: str, timeout: float) -> int:
    from nuncius.doors.tribbler.tribserver_messages import StatusReply, SubscriptionArgs

    asked = SubscriptionArgs(user, target)
    return ask(node, timeout, f"Tribserver.{method}", asked, StatusReply).status


def _tribbles(method: str, user: str, node: str, timeout: float, form: Format, nothing: str) -> None:
    from nuncius.doors.tribbler.tribserver_messages import GetTribblesArgs, GetTribblesReply

    reply = ask(node, timeout, f"Tribserver.{method}", GetTribblesArgs(user), GetTribblesReply)
    _check(reply.status, user)
    if form is Format.JSON:
        output.write_document(
            [
                {"user": as_json(each.userid), "posted": each.posted, "contents": as_json(each.contents)}
                for each in reply.tribbles
            ]
        )
        return
    width = max((len(output.printable(each.userid)) for each in reply.tribbles), default=0)
    for each in reply.tribbles:
        name = output.printable(each.userid)
        _say(f"{_time(each.posted)}  {name:<{width}}  {output.printable(each.contents)}")
    if not reply.tribbles:
        _say(nothing)


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06}Z"


def _check(status: int, user: str, without_target: str = "") -> None:
    if status == NO_SUCH_USER:
        raise NotFound(f"there is no user {user!r}; make it with: nuncius trib uc")
    if status == NO_SUCH_TARGET and without_target:
        raise NotFound(without_target)
    if status != OK:
        raise NunciusError(f"the node answered with status {status}")


def _say(text: str) -> None:
    output.write(output.printable(text))
