"""The engine and its thread: whoever holds the lease leads, and the leader runs the loops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures.thread import ThreadPoolExecutor  # now: while a program ends, it cannot be imported

from ray_multicluster_scheduler.asyncio_tools import cancel_all, together, wait_for
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.leader import RENEWALS, ClockWasSet, Leadership
from ray_multicluster_scheduler.errors import LeaseLost, SchedulerError, StoreBusy, StoreError
from ray_multicluster_scheduler.model.job import Lease

log = logging.getLogger(__name__)

#: A process that waits for the lease looks this often whether its holder is still there: a killed holder
#: tells nobody.
LOOK_AT_LEADER_S = 1.0
#: Each commit of the leader wakes those that wait: not each of them is worth a look.
LEAST_BETWEEN_LOOKS_S = 0.1


class Engine:
    """Runs until `stop` is called. Several engines on one store are safe: one leads, the others wait."""

    def __init__(self, context: EngineContext, *, holder: str) -> None:
        self._context = context
        self._holder = holder
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    def store_changed(self) -> None:
        """Take note that somebody else has written to the store; call it on the engine's loop."""
        self._changed.set()

    def stop(self) -> None:
        """Ask the engine to end; jobs go on, and another engine may take over at once."""
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Wait for the lease, lead while it holds, begin again.

        A store that is locked or full ends nothing but this turn: jobs go on, and so does the next turn.
        """
        ttl_s = self._context.settings.lease_ttl_s
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                led = await self._turn(ttl_s)
            except StoreBusy as problem:
                log.error("the job store cannot be written now: %s", problem)  # noqa: TRY400
                led = False
            if not led:
                await wait_for(self._stopping, LEAST_BETWEEN_LOOKS_S)
                await wait_for(self._changed, min(LOOK_AT_LEADER_S, ttl_s / RENEWALS))

    async def _turn(self, ttl_s: float) -> bool:
        """Lead if the lease can be had; tell whether it could."""
        context = self._context
        # Read first: acquiring takes the write lock, and many processes may wait for the lease.
        leader = await context.offload(context.store.leases.current, now=context.clock.now())
        if leader is not None and leader.holder != self._holder:
            return False
        lease = await context.offload(
            context.store.leases.acquire, self._holder, ttl_s=ttl_s, now=context.clock.now()
        )
        if lease is not None:
            await self._lead(lease)
        return lease is not None

    async def _lead(self, lease: Lease) -> None:
        log.info("leading as %s (epoch %d)", lease.holder, lease.epoch)
        leadership = asyncio.create_task(Leadership(self._context, lease, self._changed).run())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({leadership, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if leadership.done():
                leadership.result()
        except LeaseLost:
            log.warning("another scheduler leads now, not %s (epoch %d)", lease.holder, lease.epoch)
        except ClockWasSet as problem:
            log.warning("the clock was set; leading anew (by %.1f s)", problem.by_s)
        finally:
            await cancel_all([leadership, stopping])
            await self._context.offload(self._context.store.leases.release, lease)


# The engine in a background thread of the caller's process.


#: How long an ending program waits for the engine to give up its lease.
STOP_TIMEOUT_S = 5.0
#: A program that ends begins with refusing new work to executors; its main thread is over soon after that.
ENDING_S = 1.0
#: Threads for files and host names beyond two for each cluster.
SPARE_THREADS = 4

Build = Callable[[], EngineContext]


class EngineThread:
    """Runs an `Engine` on an event loop of its own. Daemon: it never keeps a program from ending."""

    def __init__(self, build: Build, *, holder: str) -> None:
        self._build = build
        self._holder = holder
        self._ready: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, EngineContext, Engine]] = (
            concurrent.futures.Future()
        )
        self._threads: ThreadPoolExecutor | None = None
        #: With what the next engine works, once this one has stopped.
        self._next: EngineContext | None = None
        #: Set when that is so.
        self._followed = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="raymc-engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the engine, giving up its lease so that another one can lead at once."""
        if not self._thread.is_alive():
            return
        loop, _, _ = self._ready.result()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the engine has just ended by itself
            loop.call_soon_threadsafe(self._stop)
        self._thread.join(STOP_TIMEOUT_S)

    def _stop(self) -> None:
        self._next = None
        self._ready.result()[2].stop()

    def change(self, build: Callable[[EngineContext], EngineContext]) -> None:
        """Let an engine with other surroundings follow this one; if they cannot be built, nothing changes.

        The loop goes on, and with it the tails of logs. Jobs go on as when another process takes the lead.
        """
        loop, _, _ = self._ready.result()
        try:
            asyncio.run_coroutine_threadsafe(self._change(build), loop).result()
        except concurrent.futures.CancelledError:
            self.check()  # it ended meanwhile; of itself, or because the program ends
            raise

    async def _change(self, build: Callable[[EngineContext], EngineContext]) -> None:
        _, context, engine = self._ready.result()
        self._next, self._followed = build(context), asyncio.Event()
        engine.stop()
        await self._followed.wait()

    def check(self) -> None:
        """Raise when the engine has ended by itself: waiting for it would be in vain."""
        if self._failure is not None:
            failure = self._failure
            raise SchedulerError(
                f"the scheduler in this process has stopped: {type(failure).__name__}: {failure}. Jobs that "
                "run go on. Start this program again; if that does not help, report the traceback in the log"
            ) from failure

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as failure:  # whatever it is, the callers raise it
            self._failure = failure
            if not self._ready.done():
                self._ready.set_exception(failure)
            threading.main_thread().join(ENDING_S)
            if threading.main_thread().is_alive():  # while the interpreter ends, anything may break
                if isinstance(failure, StoreError):  # it says what to do; where it was noticed is of no use
                    log.error("the engine has stopped: %s", failure)  # noqa: TRY400
                else:
                    log.exception("the engine has stopped")

    async def _main(self) -> None:
        loop, context = asyncio.get_running_loop(), self._build()
        try:
            while True:
                await self._lead(loop, context)
                if self._next is None:
                    return
                former, context, self._next = context, self._next, None
                kept = {id(each) for each in context.connections.values()}
                await together(each.close() for each in former.connections.values() if id(each) not in kept)
        finally:
            for each in context.connections.values():
                await each.close()
            context.offload.close()

    async def _lead(self, loop: asyncio.AbstractEventLoop, context: EngineContext) -> None:
        """Run an engine until it is told to stop."""
        # Host names are looked up on these threads: one that hangs must not keep the others waiting.
        threads = ThreadPoolExecutor(2 * len(context.connections) + SPARE_THREADS)
        former, self._threads = self._threads, threads
        loop.set_default_executor(self._threads)
        if former is not None:
            former.shutdown(wait=False)
        engine = Engine(context, holder=self._holder)
        if self._ready.done():
            self._ready = concurrent.futures.Future()
        self._ready.set_result((loop, context, engine))
        self._followed.set()

        def store_changed() -> None:
            if not loop.is_closed() and not context.offload.is_here():  # what we wrote ourselves, we know
                loop.call_soon_threadsafe(engine.store_changed)

        unsubscribe = context.store.changes.subscribe(store_changed)
        try:
            await engine.run()
        finally:
            unsubscribe()
