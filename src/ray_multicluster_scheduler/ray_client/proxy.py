"""The calls of Ray Client programs: each is answered here, or passed on to the cluster of its session."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext, suppress
from typing import Any
from weakref import WeakValueDictionary

from ray_multicluster_scheduler.asyncio_tools import Background, unless, within
from ray_multicluster_scheduler.core.lifecycle.attempt_request import (
    ATTEMPT,
    CLAIM,
    JOB,
    ORIGIN,
    SEQ,
    USER,
    claim_text,
)
from ray_multicluster_scheduler.environment.setup_failure import setup_error
from ray_multicluster_scheduler.errors import ClusterError, InvalidRequest, SchedulerError
from ray_multicluster_scheduler.model.execution import session_id
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.packages.pack import MAX_BYTES
from ray_multicluster_scheduler.ray_client import messages
from ray_multicluster_scheduler.ray_client.connected_client import (
    CLEANUP_S,
    FAILED_PRECONDITION,
    UNAVAILABLE,
    ConnectedClient,
    Upstream,
)
from ray_multicluster_scheduler.ray_client.messages import Init, Unreadable
from ray_multicluster_scheduler.ray_client.sessions import (
    SessionQueue,
    SessionRefused,
    SessionUpkeep,
    session_request,
)
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.auth import Callers, Unknown
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.packages import UploadedPackages
from ray_multicluster_scheduler.tasks.wire.sessions import BAD_ENVIRONMENT, TokenInTheClear
from raymc_relay.errors import ConnectionFailed, RelayError, UnreadableMessage
from raymc_relay.stream import Stream, splice

log = logging.getLogger(__name__)

# The helper process of a session.
#
# Heads give each session a helper process with a port of its own, which they choose seconds before it is
# bound. Two heads on one machine may choose the same one; then the session is on the other cluster. So the
# driver of the helper process is looked up on the cluster that was chosen, by what we have written into its
# metadata.

#: On one cluster. A helper process that did not start blocks the id of its client there until Ray looks after
#: it, twice a minute, or for ever: then only another cluster can begin the session.
TRIES = 5
PAUSE_S = 2.0
#: Ray's words for a helper process that did not start or is that of another cluster: its port was taken.
NOT_STARTED = ("Starting Ray client server failed", "start_specific_server", "called ray.init twice")
MOST_REPLY_BYTES = 2**20


class NotBegun(Exception):
    """This cluster cannot begin the session; another one may."""


class _NotStarted(Exception):
    """There is no helper process, or not where it should be; the next one may be right."""


class HelperStarter:
    """Starts the helper processes of one server's sessions."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: The clusters where a helper process was started before, with their Ray sessions.
        self._warm: set[tuple[str, str | None]] = set()
        self._warming = asyncio.Lock()
        self._hosts: dict[str, asyncio.Lock] = {}

    async def start(
        self, client: ConnectedClient, job: Job, init: Init, call: Stream
    ) -> tuple[Stream, bytes]:
        """Return the open data path and the answer to Init; raises `NotBegun` or `SessionRefused`."""
        records = self._scheduler.service.session_records
        composed = await asyncio.to_thread(records.environment, job.submission_id)
        marks = {
            ORIGIN: self._scheduler.store_id,
            JOB: job.submission_id,
            ATTEMPT: str(job.attempt),
            SEQ: str(job.seq),
            USER: job.spec.user,
            CLAIM: claim_text(job.spec.claim),
        }
        message = init.composed(composed, marks)
        for left in reversed(range(TRIES)):
            try:
                async with self._alone(job.cluster or ""):
                    await self._warm_up(client, job.cluster or "")
                    return await self._start_once(client, job, message, marks, call)
            except ConnectionFailed as problem:
                raise NotBegun(f"cluster {job.cluster!r} cannot be reached: {problem}") from None
            except (_NotStarted, RelayError, ClusterError) as problem:
                if not left:
                    raise NotBegun(f"cluster {job.cluster!r} did not begin it: {problem}") from None
                log.warning("session %s is begun again: %s", job.submission_id, problem)
            await asyncio.sleep(PAUSE_S)
        raise AssertionError("the last try returns or raises")

    async def _start_once(
        self, client: ConnectedClient, job: Job, message: bytes, marks: Mapping[str, str], call: Stream
    ) -> tuple[Stream, bytes]:
        stream = await client.open(call.path, call.metadata)
        with ExitStack() as undo:
            undo.callback(stream.reset)
            await stream.send_message(message)
            reply = await stream.read_message(MOST_REPLY_BYTES)
            if reply is None:
                raise _NotStarted("its cluster broke off")
            if not messages.is_accepted(reply):
                _refuse(messages.refusal_in(reply))
            if not await self._is_there(client, job, marks):
                await _end(stream)
                raise _NotStarted(f"its helper process was not on cluster {job.cluster!r}")
            undo.pop_all()
        return stream, reply

    def _alone(self, cluster: str) -> AbstractAsyncContextManager[Any]:
        """Let heads that share a machine start one helper process after the other: they share its ports."""
        config = self._scheduler.config
        host = config.cluster(cluster).head[0]
        neighbours = [spec for spec in config.clusters if spec.head[0] == host]
        return self._hosts.setdefault(host, asyncio.Lock()) if len(neighbours) > 1 else nullcontext()

    async def _is_there(self, client: ConnectedClient, job: Job, marks: Mapping[str, str]) -> bool:
        """Tell whether the helper process is a driver of the chosen cluster; if so, write it down."""
        metadata = [("client_id", client.client_id)]
        answer = await client.ask(messages.CLUSTER_INFO_PATH, metadata, messages.context_request())
        if answer is None:
            raise _NotStarted("its helper process does not answer")
        ray_job_id, cluster = messages.ray_job_id(answer), job.cluster or ""
        records = self._scheduler.service.session_records
        driver = await records.driver(cluster, ray_job_id)
        if driver is None or not marks.items() <= driver.metadata.items():
            return False
        await asyncio.to_thread(
            records.update,
            job.submission_id,
            ray_job_id=ray_job_id,
            helper_pid=driver.pid,
            helper_address=driver.address,
            failure=None,
            refused_attempt=None,
        )
        return True

    async def _warm_up(self, client: ConnectedClient, cluster: str) -> None:
        """Let a head start a first helper process: that one often fails, and blocks the id of its client."""
        ray_session = await self._scheduler.service.session_records.ray_session(cluster)
        async with self._warming:
            if (cluster, ray_session) in self._warm:
                return
            self._warm.add((cluster, ray_session))
            metadata = [("client_id", uuid.uuid4().hex), ("reconnecting", "False")]
            with suppress(RelayError):
                stream = await client.open(messages.DATAPATH_PATH, metadata)
                await stream.send_message(messages.empty_init())
                if await stream.read_message(MOST_REPLY_BYTES) is not None:
                    await _end(stream)
                stream.reset()


async def _end(stream: Stream) -> None:
    """Let the helper process at the other end of a data path end."""
    await stream.send_message(messages.cleanup())
    stream.half_close()
    with suppress(asyncio.TimeoutError):
        await within(CLEANUP_S, stream.read_message(MOST_REPLY_BYTES))


def _refuse(reason: str) -> None:
    if any(words in reason for words in NOT_STARTED):
        raise _NotStarted(reason.strip().splitlines()[-1])
    if BAD_ENVIRONMENT in reason:
        raise SessionRefused(f"the cluster cannot set this environment up: {setup_error(reason)}")
    raise SessionRefused(reason)


OK, INVALID_ARGUMENT, NOT_FOUND, INTERNAL = 0, 3, 5, 13
CLIENT_ID = re.compile(r"[A-Za-z0-9]{8,64}")
#: The first message of a session. It names packages, and holds none.
MOST_INIT_BYTES = 4 * 2**20
#: Questions before a session begins, and what is read of a refused caller before the answer.
MOST_QUESTION_BYTES = 64 * 2**10
#: A ping has two bytes, and needs no token.
MOST_PING_BYTES = 256
#: How long a message may take, and a package.
MESSAGE_TIMEOUT_S = 30.0
PACKAGE_TIMEOUT_S = 600.0
#: Packages on their way into memory, of all users; of one user there is one at a time.
PACKAGES_AT_ONCE = 4
#: So long is it known that a client was refused.
REFUSED_S = 60.0
NO_SESSION = "there is no such session, or it has ended; connect again with ray.init"
#: A client sends the first message of its session within this time.
BEGUN_WITHIN_S = 60.0
#: How long the clean-up after sessions may go on when the server ends.
CLEAN_UP_S = 5.0
#: By what a refused caller has shown.
ADVICE = {
    Unknown.MISSING: "this server wants a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or pass "
    "_metadata=[('authorization', 'Bearer TOKEN')] to ray.init; whoever runs the server makes one with "
    "`raymc token create`",
    Unknown.INVALID: "this token is not valid, or not any more; ask whoever runs this server for another one",
}


READ_ONLY = "your token may only read; a session needs the role 'submit'"


class CallerRefused(Exception):
    """The call shows no valid token, or one that may not do this. The message is for the program."""


class RayClientProxy:
    """All clients that are connected through this process."""

    def __init__(self, scheduler: Scheduler, callers: Callers, environ: Mapping[str, str]) -> None:
        self._scheduler = scheduler
        self._callers = callers
        self._environ = environ
        self._queue = SessionQueue(scheduler)
        self._helpers = HelperStarter(scheduler)
        self._clients: dict[str, ConnectedClient] = {}
        #: Why clients were refused a moment ago: calls of theirs may still come.
        self._refused: dict[str, str] = {}
        #: Set, and replaced, when a session begins or is refused.
        self._begun = asyncio.Event()
        #: A package is whole in memory before it is kept: turns, for all and for each user.
        self._packages = asyncio.Semaphore(PACKAGES_AT_ONCE)
        self._package_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._background = Background()
        self.upkeep = SessionUpkeep(scheduler, callers, self._clients, self._background)

    async def close(self) -> None:
        """Let what ends sessions go on for a moment, then cut it off."""
        await self._background.close(grace_s=CLEAN_UP_S)

    @property
    def connected(self) -> int:
        """The number of sessions whose calls pass through here."""
        return sum(client.is_connected for client in self._clients.values())

    def handle_at_once(self, call: Stream) -> bool:
        """Pass on a call of a connected client, if nothing has to be waited for: most calls are such."""
        metadata = dict(call.metadata)
        client = self._clients.get(metadata.get("client_id", ""))
        if client is None or not client.is_connected or call.path.endswith(messages.LASTING):
            return False
        caller = self._callers.identify_cached(metadata.get("authorization", ""))
        if caller is None or caller.user != client.user or not caller.may(Role.SUBMIT):
            return False
        call.connection.trust()
        stream = client.open_at_once(call.path, call.metadata)
        if stream is None:
            return False
        splice(call, stream)
        return True

    async def handle(self, call: Stream) -> None:
        """Answer one call, or pass it on."""
        try:
            await self._handle(call)
        except (SessionRefused, SchedulerError, TokenInTheClear) as refused:
            # A program would show the end of its log as an error beside the reason that it gets elsewhere.
            is_log = call.path.endswith(messages.LOGSTREAM)
            call.finish(OK if is_log else FAILED_PRECONDITION, str(refused))
        except CallerRefused as refused:
            await self._refuse_caller(call, str(refused))
        except Unreadable as problem:
            call.finish(INVALID_ARGUMENT, str(problem))
        except (RelayError, ConnectionError) as problem:
            call.finish(UNAVAILABLE, f"the cluster of this session cannot be reached: {problem}")
        except Exception:
            log.exception("a call of a Ray Client failed")
            call.finish(INTERNAL, "the server has failed here; its log says more")

    async def _handle(self, call: Stream) -> None:
        method, metadata = call.path.rpartition("/")[2], dict(call.metadata)
        client_id = metadata.get("client_id", "")
        if not CLIENT_ID.fullmatch(client_id):
            call.finish(INVALID_ARGUMENT, "the metadata names no client_id: this is no Ray Client")
            return
        client = self._clients.get(client_id)
        if method == messages.CLUSTER_INFO and (client is None or not client.is_connected):
            await self._pong(call)
            return
        caller = await self._authenticated(metadata, call)
        if method == messages.DATAPATH and metadata.get("reconnecting") != "True":
            await self._begin(call, client_id, caller)
            return
        if client is None and client_id in self._refused:
            raise SessionRefused(self._refused[client_id])
        if client is None and method in messages.BEFORE_SESSIONS:
            await self._answer_early(call, method, caller)
            return
        if client is None and not await self._resumed(client_id, caller, metadata.get("authorization", "")):
            if method != messages.LOGSTREAM:
                raise SessionRefused(NO_SESSION)
            await self._until_begun(client_id)  # this call comes together with that one, or before it
        await self._pass_on(call, await self._ready(client_id, caller))

    async def _authenticated(self, metadata: Mapping[str, str], call: Stream) -> Caller:
        """Return who calls; every call runs code on a cluster, or leads to that."""
        address = call.peer[0]
        caller = await self._callers.identify(metadata.get("authorization", ""), address)
        if isinstance(caller, Unknown):
            log.warning("a Ray Client from %s shows %s and is refused", address, caller.value)
            raise CallerRefused(ADVICE[caller])
        call.connection.trust()
        if not caller.may(Role.SUBMIT):
            raise CallerRefused(READ_ONLY)
        return caller

    # -- before a session

    async def _pong(self, call: Stream) -> None:
        """Say that somebody is there. Whether its token is good, a client learns when its session begins."""
        raw = await _message(call, MOST_PING_BYTES)
        if raw is None or not messages.is_ping(raw):
            call.finish(FAILED_PRECONDITION, "this client has no session")
            return
        await call.send_message(messages.pong())
        call.finish(OK)

    async def _refuse_caller(self, call: Stream, reason: str) -> None:
        """Refuse a call. At the begin of a session the reason goes into the answer that the program shows."""
        with suppress(RelayError, Unreadable):
            if call.path.endswith(f"/{messages.DATAPATH}"):
                raw = await _message(call, MOST_QUESTION_BYTES)
                if raw is not None:
                    await _answer_refused(call, messages.refused_unread(raw, reason))
                    return
        is_log = call.path.endswith(messages.LOGSTREAM)
        call.finish(OK if is_log else FAILED_PRECONDITION, reason)

    async def _answer_early(self, call: Stream, method: str, caller: Caller) -> None:
        """Keep the directories that a client packs before it connects: its cluster is not chosen yet."""
        packages = self._scheduler.service.as_caller(caller).packages
        assert isinstance(packages, UploadedPackages), "a caller of the server is another process"
        if method == messages.KV_PUT:
            await self._keep_package(call, packages, caller.user)
            answer = messages.put_answer()
        else:
            raw = await _message(call, MOST_QUESTION_BYTES) or b""
            if method == messages.KV_GET:
                answer = messages.no_value()
            elif method == messages.PIN_URI:
                answer = messages.pin_answer()
            else:
                is_there = await asyncio.to_thread(packages.has, messages.asked_for(raw))
                answer = messages.exists_answer(exists=is_there)
        await call.send_message(answer)
        call.finish(OK)

    async def _keep_package(self, call: Stream, packages: UploadedPackages, user: str) -> None:
        turn = self._package_of.setdefault(user, asyncio.Lock())
        async with turn, self._packages:
            raw = await _message(call, MAX_BYTES, PACKAGE_TIMEOUT_S) or b""
            await asyncio.to_thread(_keep_package, packages, *messages.uploaded(raw))

    # -- the begin

    async def _begin(self, call: Stream, client_id: str, caller: Caller) -> None:
        # A client opens this stream first, then packs and uploads its directories, then sends Init.
        raw = await _message(call, MOST_INIT_BYTES, PACKAGE_TIMEOUT_S)
        if raw is None:
            raise Unreadable("a client must begin with Init")
        try:
            init = await asyncio.to_thread(messages.read_init, raw)
        except InvalidRequest as problem:
            self._remember_refused(client_id, str(problem))
            await _answer_refused(call, messages.refused_unread(raw, str(problem)))
            return
        if client_id in self._clients:
            raise SessionRefused("this client has a session already")
        client = ConnectedClient(
            client_id,
            submission_id=session_id(client_id),
            user=caller.user,
            credential=dict(call.metadata).get("authorization", ""),
        )
        self._clients[client_id] = client
        self._tell_begun()
        try:
            stream, reply = await self._started(call, client, caller, init)
            if client.ended is not None:
                self._break_off(client, stream)
        except (SessionRefused, SchedulerError, TokenInTheClear, RelayError, ConnectionError) as problem:
            client.end(str(problem))
            self._clients.pop(client_id, None)
            self._remember_refused(client_id, str(problem))
            await _answer_refused(call, init.refused(str(problem)))
            return
        except BaseException:
            self._clients.pop(client_id, None)
            raise
        with ExitStack() as undo:
            undo.callback(stream.reset)
            await call.send_message(reply)
            undo.pop_all()
        client.settled.set()
        await self._spliced(call, stream, client)

    async def _started(
        self, call: Stream, client: ConnectedClient, caller: Caller, init: Init
    ) -> tuple[Stream, bytes]:
        """Wait for a cluster and begin the session there, as long as the client waits."""
        metadata, service = dict(call.metadata), self._scheduler.service.as_caller(caller)
        request, program = session_request(
            metadata, init, user=caller.user, submission_id=client.submission_id, address=call.peer[0]
        )
        job = await self._queue.placed(service, request, program)
        while True:  # the leader ends it after a few attempts
            client.go_to(self._upstream(job))
            try:
                begun = await self._begun_on(job, call, client, init)
                break
            except NotBegun as problem:
                log.warning("session %s waits for another cluster: %s", job.submission_id, problem)
                job = await self._queue.placed_again(service, request, job, str(problem))
            except BaseException as problem:
                reason = str(problem) or "its program went away"
                await asyncio.shield(self._failed(client, reason))
                raise
        log.info("session %s of %s is on cluster %r", job.submission_id, client.user, job.cluster)
        return begun

    async def _begun_on(
        self, job: Job, call: Stream, client: ConnectedClient, init: Init
    ) -> tuple[Stream, bytes]:
        begun = await unless(client.settled, self._helpers.start(client, job, init, call))
        if begun is None:  # it was stopped meanwhile
            raise SessionRefused(client.ended)
        return begun

    def _break_off(self, client: ConnectedClient, stream: Stream) -> None:
        """Refuse a session that was stopped while it began."""
        stream.reset()
        self.upkeep.in_background(client.clean_up())
        raise SessionRefused(client.ended)

    async def _failed(self, client: ConnectedClient, reason: str) -> None:
        """Write down why a session did not begin, so that its place is free at once."""
        client.close()
        await self._note(client, failure=reason, refused_attempt=None)

    def _upstream(self, job: Job) -> Upstream:
        return Upstream(self._scheduler.config.cluster(job.cluster or ""), self._environ)

    def _remember_refused(self, client_id: str, reason: str) -> None:
        self._refused[client_id] = reason
        asyncio.get_running_loop().call_later(REFUSED_S, self._refused.pop, client_id, None)
        self._tell_begun()

    def _tell_begun(self) -> None:
        self._begun.set()
        self._begun = asyncio.Event()

    async def _until_begun(self, client_id: str) -> None:
        """Wait a while until a client has sent the first message of its session."""
        ends_at = time.monotonic() + BEGUN_WITHIN_S
        while (left_s := ends_at - time.monotonic()) > 0:
            if client_id in self._clients or client_id in self._refused:
                return
            with suppress(asyncio.TimeoutError):
                await within(left_s, self._begun.wait())

    # -- calls of a session

    async def _ready(self, client_id: str, caller: Caller) -> ConnectedClient:
        """Return the client of a call as soon as its calls can be passed on."""
        client = self._clients.get(client_id)
        if client is None or client.user != caller.user:
            raise SessionRefused(self._refused.get(client_id, NO_SESSION))
        await client.settled.wait()
        if not client.is_connected:
            raise SessionRefused(client.ended or "its session has not begun")
        return client

    async def _resumed(self, client_id: str, caller: Caller, authorization: str) -> bool:
        """Take over a session whose server is gone. Ray keeps it for a while, and the store its cluster."""
        submission_id = session_id(client_id)
        records = self._scheduler.service.session_records
        found = await asyncio.to_thread(records.get_many, [submission_id])
        if client_id in self._clients:  # another call was faster
            return True
        if submission_id not in found:
            return False
        job, session = found[submission_id]
        if session.ray_job_id is None or job.final or job.spec.user != caller.user:
            return False
        client = ConnectedClient(
            client_id, submission_id=submission_id, user=caller.user, credential=authorization
        )
        client.go_to(self._upstream(job))
        client.settled.set()
        self._clients[client_id] = client
        log.info("session %s of %s goes on here", submission_id, client.user)
        return True

    async def _pass_on(self, call: Stream, client: ConnectedClient) -> None:
        if call.path == messages.DATAPATH_PATH:  # the client is back
            await self._note(client, failure=None)
        await self._spliced(call, await client.open(call.path, call.metadata), client)

    async def _spliced(self, call: Stream, stream: Stream, client: ConnectedClient) -> None:
        client.add(call)
        splice(call, stream)
        try:
            await call.closed()
        finally:
            client.remove(call)
        if call.path == messages.DATAPATH_PATH and client.is_connected:
            await self._note(client, **_end_of(stream))

    async def _note(self, client: ConnectedClient, **values: Any) -> None:
        update = self._scheduler.service.session_records.update
        await asyncio.to_thread(update, client.submission_id, **values)


def _end_of(stream: Stream) -> dict[str, Any]:
    """Return what to write down about the end of a data path: Ray tells only that its driver is dead."""
    if stream.trailers is None and not stream.is_lost:
        return {"failure": "its program broke off without disconnecting"}
    if dict(stream.trailers or ()).get("grpc-status") == "0":
        return {"disconnected": True, "failure": None}
    return {"failure": "its helper process, or the connection to it, broke off"}


async def _answer_refused(call: Stream, answer: bytes) -> None:
    """Refuse a session. Its program may miss the reason if the call ends before it has read the answer."""
    await call.send_message(answer)
    with suppress(Unreadable, RelayError):
        await _message(call, MOST_QUESTION_BYTES)
    call.finish(OK)


async def _message(call: Stream, most_bytes: int, timeout_s: float = MESSAGE_TIMEOUT_S) -> bytes | None:
    """Return the next message of a program, or None after the last one; raises `Unreadable`."""
    try:
        return await within(timeout_s, call.read_message(most_bytes))
    except asyncio.TimeoutError:
        raise Unreadable(f"this call has sent no whole message within {timeout_s:g} s") from None
    except UnreadableMessage as problem:
        raise Unreadable(str(problem)) from None


def _keep_package(packages: UploadedPackages, name: str, content: bytes) -> None:
    with packages.receive() as file:
        file.write(content)
        packages.keep(name, file)
