"""Run an event loop in a thread, for callers that have none."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from nuncius.client import errors

P = ParamSpec("P")
T = TypeVar("T")

MAX_OPEN = 10_000  # started calls without a result; the next call waits for one of them to finish


class Background:
    """Run coroutines for other threads, from construction until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="nuncius-client", daemon=True)
        self._started: deque[tuple[Future[Any], Callable[[], Awaitable[Any]], bool]] = deque()
        self._woken = False
        self._room = threading.Semaphore(MAX_OPEN)
        self._stopping = threading.Lock()
        self._stopped = False
        self._handing_over = threading.Lock()  # hand nothing to a loop that has stopped
        self._thread.start()

    def call(self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine and wait for its result. Ctrl-C cancels both."""
        self._not_from_inside()
        with self._handing_over:
            self._still_running()
            future = asyncio.run_coroutine_threadsafe(verb(*args, **kwargs), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise errors.Closed("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def start(self, verb: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function that returns an awaitable, without a task of its own. Calls started in a row run in
        one turn of the loop. Waits while `MAX_OPEN` calls are open, except inside the loop's thread."""
        counts = not self._is_inside()
        if counts:
            self._room.acquire()
        future: Future[T] = Future()
        with self._handing_over:
            self._still_running()
            self._started.append((future, partial(verb, *args, **kwargs), counts))
            if not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self._take_over)
        return future

    def ask(self, verb: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Start a call and wait for its result."""
        self._not_from_inside()
        return self.start(verb, *args, **kwargs).result()

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one last coroutine and end the thread. Later calls do nothing."""
        self._not_from_inside()
        with self._stopping:
            if self._stopped or not self._thread.is_alive():
                return
            try:
                self.call(last)
            finally:
                with self._handing_over:
                    self._stopped = True
                    self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(asyncio.sleep(0))  # calls handed over last fail with Closed
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _take_over(self) -> None:
        self._woken = False  # reset before looking: calls added from now on wake the loop again
        while self._started:
            future, verb, counts = self._started.popleft()
            settle = partial(self._settle, future, counts)
            if not future.set_running_or_notify_cancel():
                self._release(counts)
                continue
            try:
                asyncio.ensure_future(verb()).add_done_callback(settle)
            except Exception as error:
                self._release(counts)
                future.set_exception(error)

    def _settle(self, future: Future[Any], counts: bool, done: asyncio.Future[Any]) -> None:
        self._release(counts)
        if done.cancelled():
            future.set_exception(errors.Closed("the client was closed"))
        elif (error := done.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())

    def _release(self, counts: bool) -> None:
        if counts:
            self._room.release()

    def _still_running(self) -> None:
        if self._stopped:
            raise errors.Closed("the client is closed")
        if not self._thread.is_alive():
            raise errors.Closed("a client does not go along into a forked process: open another one there")

    def _is_inside(self) -> bool:
        return threading.get_ident() == self._thread.ident

    def _not_from_inside(self) -> None:
        """Raise an error in the loop's thread: a future's callback runs there, and waiting would never
        end."""
        if self._is_inside():
            raise RuntimeError("a callback of the client must not wait for the client")
