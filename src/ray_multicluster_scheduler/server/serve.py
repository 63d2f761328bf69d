"""Run the server: the web application and the engine in one process, from a free port to a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.config.user import this_user
from ray_multicluster_scheduler.errors import InvalidRequest, SchedulerError
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.protocol import CarefulProtocol
from ray_multicluster_scheduler.server.request_log import JsonLines, LogLines, PlainLines, is_request
from ray_multicluster_scheduler.server.running import announced
from ray_multicluster_scheduler.server.server_options import (
    ServerOptions,
    check_certificate,
    check_may_bind,
)
from ray_multicluster_scheduler.server.websocket_protocol import CarefulWebSocket

log = logging.getLogger(__name__)

#: How often the server looks whether its engine is still there.
LOOK_AT_ENGINE_S = 1.0
#: An idle connection is closed after this time. Longer than proxies and Ray's clients keep one unused.
KEEP_ALIVE_S = 75

Say = Callable[[str], None]


def serve(scheduler: Scheduler, options: ServerOptions, *, say: Say) -> None:
    """Listen until SIGTERM or SIGINT; raises what ended the engine, if something did. Jobs go on."""
    with _listening(options) as listeners, _logging(options):
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
            scheduler.check()
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
        """Serve until told to stop, or until the engine has ended by itself."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number, say)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        watching = asyncio.create_task(self._watch())
        try:
            # From here on SIGHUP does no harm.
            with announced(_announced_in(self._scheduler)):
                async with self._clients(listeners[1:]):
                    await self._uvicorn.serve(sockets=[listeners[0]])
        finally:
            watching.cancel()

    def _clients(self, listeners: Sequence[socket.socket]) -> AbstractAsyncContextManager[None]:
        """Serve Ray Client programs, if this server has a port for them."""
        if not listeners:
            return nullcontext()
        from ray_multicluster_scheduler.server.client_port import serving_clients  # noqa: PLC0415 - imports Ray

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

    async def _watch(self) -> None:
        """End the server with its engine: a service manager starts both anew."""
        while True:
            await asyncio.sleep(LOOK_AT_ENGINE_S)
            try:
                self._scheduler.check()
            except SchedulerError:
                self._end()
                return


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


@contextmanager
def _logging(options: ServerOptions) -> Iterator[None]:
    """Write our log and uvicorn's warnings to stderr: for a person at a terminal, else JSON, a line each."""
    handler = LogLines(sys.stderr)
    for_people = sys.stderr.isatty()
    handler.setFormatter(PlainLines() if for_people else JsonLines())
    handler.addFilter(_not_logged_elsewhere)
    if not (not for_people if options.access_log is None else options.access_log):
        handler.addFilter(lambda record: not is_request(record))
    ours, theirs = logging.getLogger("ray_multicluster_scheduler"), logging.getLogger("uvicorn.error")
    former = ours.level, theirs.level, ours.handlers[:]
    ours.handlers[:] = [handler]  # the lines of the command line are for a person who waits
    theirs.addHandler(handler)
    ours.setLevel(logging.INFO)
    theirs.setLevel(logging.WARNING)
    try:
        yield
    finally:
        handler.flush()
        theirs.removeHandler(handler)
        ours.handlers[:] = former[2]
        ours.setLevel(former[0])
        theirs.setLevel(former[1])


def _not_logged_elsewhere(record: logging.LogRecord) -> bool:
    """Drop records that `Door` has logged with the request's id, and those of streams that we cut."""
    return record.name != "uvicorn.error" or not record.getMessage().startswith(
        ("Exception in ASGI application", "ASGI callable returned without completing")
    )
