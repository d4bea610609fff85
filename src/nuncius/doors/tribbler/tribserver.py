"""The Tribbler service: its seven methods, and four that nodes of a ring and the pipeline use."""

from collections.abc import Awaitable, Callable
from typing import Any

from nuncius.doors.tribbler.rpc_client import RpcClients
from nuncius.doors.tribbler.services import Method, Service
from nuncius.doors.tribbler.tribserver_messages import (
    CreateUserArgs,
    GetSubscriptionsArgs,
    GetSubscriptionsReply,
    GetTribblesArgs,
    GetTribblesReply,
    PostManyArgs,
    PostManyReply,
    PostTribbleArgs,
    PutManyArgs,
    RecentArgs,
    RecentReply,
    StatusReply,
    SubscriptionArgs,
    Tribble,
)
from nuncius.doors.tribbler.tribserver_peers import RingPeers
from nuncius.ring.storage_ring import RingStorage
from nuncius.ring.tribbler.local import LocalPosts, Query
from nuncius.ring.tribbler.posting import Posting
from nuncius.ring.tribbler.tribbler import Answer, Tribbler

NAME = "Tribserver"


def build(
    storage: RingStorage,
    callers: RpcClients,
    query: Query,
    *,
    shared: bool = False,
    timelines_from: int,
) -> Service:
    """Return the Tribbler service of a node. `query` asks the node's own store; `shared`: other processes own
    the same keys."""
    local = LocalPosts(query)
    peers = RingPeers(storage, callers, Posting(storage, shared=shared), local)
    tribbler = Tribbler(storage, peers, timelines_from=timelines_from)

    async def subscriptions(args: GetSubscriptionsArgs) -> GetSubscriptionsReply:
        return GetSubscriptionsReply(*await tribbler.subscriptions(args.userid))

    async def post_many(args: PostManyArgs) -> PostManyReply:
        return PostManyReply(await peers.post_many(args.userids, args.contents))

    async def recent(args: RecentArgs) -> RecentReply:
        posts = await local.recent(None if args.is_first else args.offsets)
        return RecentReply(posts.topic, posts.starts, posts.counts, posts.users, posts.posted, posts.more)

    methods = {
        "CreateUser": Method(CreateUserArgs, _status(lambda args: tribbler.create_user(args.userid))),
        "AddSubscription": Method(
            SubscriptionArgs, _status(lambda args: tribbler.add_subscription(args.userid, args.targetuser))
        ),
        "RemoveSubscription": Method(
            SubscriptionArgs, _status(lambda args: tribbler.remove_subscription(args.userid, args.targetuser))
        ),
        "GetSubscriptions": Method(GetSubscriptionsArgs, subscriptions, reads=True),
        "PostTribble": Method(
            PostTribbleArgs, _status(lambda args: tribbler.post(args.userid, args.contents))
        ),
        "GetTribbles": Method(
            GetTribblesArgs, _tribbles(lambda args: tribbler.tribbles(args.userid)), reads=True
        ),
        "GetTribblesBySubscription": Method(
            GetTribblesArgs,
            _tribbles(lambda args: tribbler.tribbles_by_subscription(args.userid)),
            reads=True,
        ),
        "PostFor": Method(PostTribbleArgs, _status(lambda args: peers.post_here(args.userid, args.contents))),
        "PostMany": Method(PostManyArgs, post_many),
        "Recent": Method(RecentArgs, recent, reads=True),
        "PutMany": Method(PutManyArgs, _status(lambda args: peers.put_many(args.keys, args.values))),
    }
    return Service(NAME, methods)


def _status(call: Callable[[Any], Awaitable[int | None]]) -> Callable[[Any], Awaitable[StatusReply]]:
    async def answer(args: Any) -> StatusReply:
        return StatusReply(await call(args) or 0)

    return answer


def _tribbles(call: Callable[[Any], Awaitable[Answer]]) -> Callable[[Any], Awaitable[GetTribblesReply]]:
    async def answer(args: Any) -> GetTribblesReply:
        status, tribbles = await call(args)
        return GetTribblesReply(status, [Tribble(each.user, each.posted, each.contents) for each in tribbles])

    return answer
