"""Run the server: the web application here, the scheduler in a child process, to a clean end of both."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from typing import IO

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge

from ray_multicluster_scheduler.background import command, is_holder
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.find import state_dir, this_user
from ray_multicluster_scheduler.errors import InvalidRequest, SchedulerError
from ray_multicluster_scheduler.log_format import logging_to_stderr
from ray_multicluster_scheduler.ray_client.proxy import RayClientProxy
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.protocol import CarefulProtocol, CarefulWebSocket
from ray_multicluster_scheduler.server.server_options import ServerOptions, check_certificate, check_may_bind
from ray_multicluster_scheduler.service.auth import Callers
from ray_multicluster_scheduler.service.service import Parts
from raymc_relay import RelayLimits, StrangerLimits, listen

# The scheduler process as the child of `raymc serve`: supervised, and started again when it dies.


log = logging.getLogger(__name__)

#: Before a scheduler that has died is started again: this long, then twice as long each time.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
#: A scheduler that has lived this long had a good start.
GOOD_START_S = 60.0
#: How long its end may take: it gives its lease up.
END_TIMEOUT_S = 10.0


class SchedulerChild:
    """One scheduler process at a time, from `start` to `stop`. It ends when this process ends."""

    def __init__(self, config_path: Path, *, environ: Mapping[str, str], job_address: str | None) -> None:
        self._command = command(config_path)
        self._environ = environ
        self._job_address = job_address
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: str | None = "it is being started"
        self._thread = threading.Thread(target=self._supervise, name="raymc-scheduler", daemon=True)

    def start(self) -> None:
        """Start the scheduler, and begin to watch it."""
        self._thread.start()

    def problem(self) -> str | None:
        """Say why no scheduler runs; None: one does."""
        return self._problem

    def is_leader(self, holder: str) -> bool:
        """Tell whether the holder of a lease is this scheduler."""
        process = self._process
        return process is not None and is_holder(holder, process.pid)

    def reload(self) -> None:
        """Let the scheduler read its configuration again."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End the scheduler. Jobs go on."""
        self._stopping.set()
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)

    def _supervise(self) -> None:
        # The scheduler inherits this, and lets SIGHUP through when it can obey: earlier it would die of it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            lived = threading.Event()
            timer = threading.Timer(GOOD_START_S, lived.set)
            timer.daemon = True
            timer.start()
            code = self._run_once()
            timer.cancel()
            if self._stopping.is_set():
                return
            pause_s = FIRST_PAUSE_S if lived.is_set() else pause_s
            self._problem = f"it ended with code {code}, and is started again in {pause_s:g} s"
            log.error("the scheduler has ended and is started again", extra={"code": code, "in_s": pause_s})
            self._stopping.wait(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _run_once(self) -> int | str:
        """Run a scheduler until it ends; return its exit code, or why it could not be started."""
        ends, alive = os.pipe()  # at its end when this process is gone
        options = ["--server", str(ends)]
        if self._job_address is not None:
            options += ["--job-address", self._job_address]
        try:
            self._process = subprocess.Popen(
                [*self._command, *options],
                stdin=subprocess.DEVNULL,
                env=dict(self._environ),
                pass_fds=(ends,),
                start_new_session=True,  # Ctrl-C on a terminal is for the server, which ends it
            )
            self._problem = None
            if self._stopping.is_set():
                self._process.terminate()
            return self._process.wait()
        except OSError as problem:
            return str(problem)
        finally:
            self._process = None
            os.close(ends)
            os.close(alive)


# Which servers of a configuration run on this machine. Each holds a lock for as long as it lives.


@contextmanager
def announced(directory: Path) -> Iterator[None]:
    """Let this process be found as a server while the block runs."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / f"{_prefix()}{os.getpid()}.lock"
    with _locked(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked(path: Path) -> IO[str]:
    """Create and lock a file. Before it is locked, `running_servers` may remove it as one that was left."""
    while True:
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()


def running_servers(directory: Path) -> list[int]:
    """Return the process ids of the servers here. A file that nobody locks is left of one that was killed."""
    found = []
    for path in sorted(directory.glob(f"{_prefix()}*.lock")):
        with path.open("r") as file:
            if _is_free(file):
                path.unlink(missing_ok=True)
            else:
                found.append(int(path.stem.removeprefix(_prefix())))
    return found


def _is_free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prefix() -> str:
    """Name the machine as well: the directory may be one that several share."""
    return f"server-{socket.gethostname()}-"


#: An idle connection is closed after this time. Longer than proxies and Ray's clients keep one unused.
KEEP_ALIVE_S = 75

Say = Callable[[str], None]


class ServedScheduler(Scheduler):
    """The scheduler of a server: its engine runs in a child process, so that no request holds it up."""

    _child: SchedulerChild | None = None

    def start(self) -> None:
        """Start the child, once."""
        if self._child is None:
            self._child = SchedulerChild(
                self.config.path, environ=self._environ, job_address=self.job_address
            )
            self._child.start()

    def ensure_scheduled(self, *, at_once: bool = False) -> None:
        """Do nothing: the child is watched."""

    def engine_problem(self) -> str | None:
        """Say why the child does not run."""
        return "it is not started" if self._child is None else self._child.problem()

    def is_leader(self, holder: str) -> bool:
        """Tell whether the child holds the lease."""
        return self._child is not None and self._child.is_leader(holder)

    def _change_engine(self, former: Config, fresh: Config, parts: Parts) -> None:  # noqa: ARG002
        if self._child is not None:
            self._child.reload()

    def _close(self) -> None:
        if self._child is not None:
            self._child.stop()
        super()._close()


def serve(scheduler: Scheduler, options: ServerOptions, *, say: Say) -> None:
    """Listen until SIGTERM or SIGINT. Jobs go on."""
    with _listening(options) as listeners, logging_to_stderr(access_log=options.access_log):
        listener = listeners[0]
        try:
            scheduler.job_address = options.public_url or options.address(listener.getsockname()[1])
            if options.ssl_certfile is not None:
                check_certificate(options.ssl_certfile, options.ssl_keyfile)
            check_may_bind(
                options.host,
                has_tokens=scheduler.tokens.required(),
                tls=options.tls,
                insecure_http=options.insecure_http,
            )
            app = create_app(scheduler, options)  # takes its time: what is said next has to be true
            scheduler.start()
            for line in startup_lines(scheduler, options, *(each.getsockname()[1] for each in listeners)):
                say(line)
            asyncio.run(_Server(app, scheduler, options).run(listeners, say))
        finally:
            scheduler.stop()
    say("stopped; jobs go on, and the next server or command takes over")


def _announced_in(scheduler: Scheduler) -> Path:
    """Return where servers of this clusters.yaml are looked for, wherever their jobs are kept."""
    return state_dir(scheduler.config.path, os.environ)


def startup_lines(
    scheduler: Scheduler, options: ServerOptions, port: int, client_port: int | None = None
) -> Iterator[str]:
    """Yield what to say at the start: what is served, and where."""
    at, clusters = options.address(port), ", ".join(spec.name for spec in scheduler.config.clusters)
    yield f"raymc serve: {clusters} of {scheduler.config.path}; jobs are kept in {scheduler.place}"
    if options.dashboard:
        yield f"  dashboard          {at}/"
    yield f"  stock Ray clients  {at}  (RAY_API_SERVER_ADDRESS, ray job submit --address)"
    if client_port is not None:
        yield f"  ray.init           {options.client_address(client_port)}  (Ray Client programs)"
    yield f"  REST               {at}/api/v1"
    yield f"  its reference      {at}/docs"
    yield f"  health             {at}/healthz {at}/readyz"
    yield f"  metrics            {at}/metrics"
    if scheduler.tokens.required():
        yield "  authentication     by token (raymc token create); Ray's clients need RAY_AUTH_MODE=token"
    else:
        yield f"  authentication     none: whoever connects on this machine acts as {this_user()}"
    yield f"process {os.getpid()}: SIGTERM or Ctrl-C ends it (jobs go on), SIGHUP reads clusters.yaml again"


class _Server:
    """One run of the web application."""

    def __init__(self, app: FastAPI, scheduler: Scheduler, options: ServerOptions) -> None:
        self._app = app
        self._scheduler = scheduler
        self._options = options
        self._reloads: set[asyncio.Task[None]] = set()
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=CarefulProtocol,
                ws=CarefulWebSocket,
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=options.stop_timeout_s,
                ssl_certfile=options.ssl_certfile,
                ssl_keyfile=options.ssl_keyfile,
            )
        )

    async def run(self, listeners: Sequence[socket.socket], say: Say) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number, say)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        # From here on SIGHUP does no harm.
        with announced(_announced_in(self._scheduler)):
            async with self._clients(listeners[1:]):
                await self._uvicorn.serve(sockets=[listeners[0]])

    def _clients(self, listeners: Sequence[socket.socket]) -> AbstractAsyncContextManager[None]:
        """Serve Ray Client programs, if this server has a port for them."""
        if not listeners:
            return nullcontext()

        state = self._app.state
        return serving_clients(
            self._scheduler,
            self._options,
            listeners[0],
            callers=state.callers,
            registry=state.metrics.registry,
        )

    def _stop(self, number: int, say: Say) -> None:
        if self._uvicorn.should_exit:  # a second signal means: do not wait
            say("ending at once")
            os._exit(128 + number)
        say("stopping; once more ends it at once")
        self._end()

    def _reload(self) -> None:
        """Read clusters.yaml again, off the loop; a wrong file changes nothing."""
        self._reloads.add(task := asyncio.create_task(asyncio.to_thread(reload, self._scheduler)))
        task.add_done_callback(self._reloads.discard)

    def _end(self) -> None:
        self._app.state.stopping.set()
        self._uvicorn.should_exit = True


def reload(scheduler: Scheduler) -> None:
    """Read clusters.yaml again, and log what that has changed, or why it has changed nothing."""
    path = str(scheduler.config.path)
    try:
        change = scheduler.reload()
    except SchedulerError as problem:
        log.error("clusters.yaml was not taken over", extra={"file": path, "why": str(problem)})  # noqa: TRY400
    else:
        log.info("clusters.yaml was read again", extra={"file": path, "change": str(change)})


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: they are ours."""
        yield


@contextmanager
def _listening(options: ServerOptions) -> Iterator[list[socket.socket]]:
    """Take the ports before anything is started, so that a taken one costs nothing."""
    ports = {"--port": options.port, "--client-port": options.client_port}
    with ExitStack() as stack:
        yield [
            stack.enter_context(_listener(options.host, port, option))
            for option, port in ports.items()
            if port is not None
        ]


def _listener(host: str, port: int, option: str) -> socket.socket:
    try:
        where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[4][:2], family=where[0], backlog=2048)
    except OSError as problem:
        raise InvalidRequest(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}; is a "
            f"server there already? Another {option} or --host may be free"
        ) from None


# The port of Ray Client programs: the same users and tokens as those of the HTTP port.


@asynccontextmanager
async def serving_clients(
    scheduler: Scheduler,
    options: ServerOptions,
    listener: socket.socket,
    *,
    callers: Callers,
    registry: CollectorRegistry,
) -> AsyncIterator[None]:
    """Serve Ray Client programs while the block runs. Sessions go on: another server takes them over."""
    proxy = RayClientProxy(scheduler, callers, os.environ)
    gauge = Gauge(
        "raymc_client_sessions", "Ray Client sessions that are connected through here.", registry=registry
    )
    gauge.set_function(lambda: proxy.connected)
    listening = await listen(
        proxy.handle,
        sock=listener,
        ssl=_tls(options),
        limits=RelayLimits(strangers=StrangerLimits()),
        at_once=proxy.handle_at_once,
    )
    keeping = asyncio.create_task(proxy.upkeep.run())
    try:
        yield
    finally:
        await listening.close()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await proxy.close()


def _tls(options: ServerOptions) -> ssl.SSLContext | None:
    if options.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
    context.set_alpn_protocols(["h2"])
    return context
