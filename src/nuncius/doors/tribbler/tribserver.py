"""The Tribbler service: its seven methods, and three that nodes of a ring and the pipeline use."""

from collections.abc import Awaitable, Callable, Sequence

from nuncius.doors.tribbler.services import Method, Service
from nuncius.doors.tribbler.tribserver_messages import (
    CreateUserArgs,
    GetSubscriptionsArgs,
    GetSubscriptionsReply,
    GetTribblesArgs,
    GetTribblesReply,
    PostTribbleArgs,
    PutManyArgs,
    RecentArgs,
    RecentReply,
    StatusReply,
    SubscriptionArgs,
    Tribble,
)
from nuncius.ring.tribbler import model
from nuncius.ring.tribbler.recent import Posts
from nuncius.ring.tribbler.tribbler import Tribbler

NAME = "Tribserver"


def service(
    tribbler: Tribbler,
    post_here: Callable[[str, str], Awaitable[int]],
    recent_here: Callable[[list[int] | None], Awaitable[Posts]],
    put_many: Callable[[Sequence[str], Sequence[str]], Awaitable[None]],
) -> Service:
    """Return the service of an application. The other callables serve calls between nodes: post for a user
    whose keys are here, return recent posts of this node, and put many values, whichever nodes own them."""

    async def create_user(args: CreateUserArgs) -> StatusReply:
        return StatusReply(await tribbler.create_user(args.userid))

    async def add_subscription(args: SubscriptionArgs) -> StatusReply:
        return StatusReply(await tribbler.add_subscription(args.userid, args.targetuser))

    async def remove_subscription(args: SubscriptionArgs) -> StatusReply:
        return StatusReply(await tribbler.remove_subscription(args.userid, args.targetuser))

    async def get_subscriptions(args: GetSubscriptionsArgs) -> GetSubscriptionsReply:
        return GetSubscriptionsReply(*await tribbler.subscriptions(args.userid))

    async def post_tribble(args: PostTribbleArgs) -> StatusReply:
        return StatusReply(await tribbler.post(args.userid, args.contents))

    async def get_tribbles(args: GetTribblesArgs) -> GetTribblesReply:
        status, tribbles = await tribbler.tribbles(args.userid)
        return GetTribblesReply(status, _named(tribbles))

    async def get_tribbles_by_subscription(args: GetTribblesArgs) -> GetTribblesReply:
        status, tribbles = await tribbler.tribbles_by_subscription(args.userid)
        return GetTribblesReply(status, _named(tribbles))

    async def post_for(args: PostTribbleArgs) -> StatusReply:
        await post_here(args.userid, args.contents)
        return StatusReply()

    async def recent(args: RecentArgs) -> RecentReply:
        posts = await recent_here(None if args.is_first else args.offsets)
        return RecentReply(posts.topic, posts.starts, posts.counts, posts.users, posts.posted, posts.more)

    async def put(args: PutManyArgs) -> StatusReply:
        await put_many(args.keys, args.values)
        return StatusReply()

    return Service(
        NAME,
        {
            "CreateUser": Method(CreateUserArgs, create_user),
            "AddSubscription": Method(SubscriptionArgs, add_subscription),
            "RemoveSubscription": Method(SubscriptionArgs, remove_subscription),
            "GetSubscriptions": Method(GetSubscriptionsArgs, get_subscriptions, reads=True),
            "PostTribble": Method(PostTribbleArgs, post_tribble),
            "GetTribbles": Method(GetTribblesArgs, get_tribbles, reads=True),
            "GetTribblesBySubscription": Method(GetTribblesArgs, get_tribbles_by_subscription, reads=True),
            "PostFor": Method(PostTribbleArgs, post_for),
            "Recent": Method(RecentArgs, recent, reads=True),
            "PutMany": Method(PutManyArgs, put),
        },
    )


def _named(tribbles: list[model.StoredTribble]) -> list[Tribble]:
    return [Tribble(each.user, each.posted, each.contents) for each in tribbles]
