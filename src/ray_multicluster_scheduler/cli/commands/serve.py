"""`raymc serve`: the server, in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.options.common import ConfigOption
from ray_multicluster_scheduler.config.find import server_url
from ray_multicluster_scheduler.config.installed import (
    check_dashboard,
    check_ray,
    check_server,
    has_dashboard,
)
from ray_multicluster_scheduler.config.store_place import STORE_VARIABLE
from ray_multicluster_scheduler.errors import InvalidRequest

#: The defaults of `server.server_options.ServerOptions`, which a TAB must not import; a test compares them.
HOST, PORT = "127.0.0.1", 8700


def serve(
    *,
    config: ConfigOption = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine only with tokens.")
    ] = HOST,
    port: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=65535, help="Where to listen; 0: any free port.")
    ] = PORT,
    client_port: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=0,
            max=65535,
            help="Serve ray.init('ray://...') there as well; 10001 is Ray's own.",
        ),
    ] = None,
    dashboard: Annotated[
        bool | None,
        typer.Option(
            "--dashboard/--no-dashboard", help="Pages for a browser; by default where NiceGUI is installed."
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where jobs and other machines reach it; told to every job."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Where jobs are kept: a directory, or postgresql://user@host/db."),
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS: the certificate with its chain (PEM).")
    ] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: its key (PEM).")] = None,
    insecure_http: Annotated[
        bool,
        typer.Option(
            "--insecure-http", help="Listen beyond this machine without TLS: a proxy in front has it."
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that clients use for this server, beside its own."),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A page elsewhere that may call this server from a browser."),
    ] = None,
    access_log: Annotated[
        bool | None,
        typer.Option(
            "--access-log/--no-access-log",
            help="One line of the log for each request; by default where the log is no terminal.",
        ),
    ] = None,
) -> None:
    """Serve Ray clients, REST and a dashboard over all clusters, and schedule, until Ctrl-C.

    SIGTERM ends it as well; jobs go on. SIGHUP, or `raymc config reload`, reads clusters.yaml again.
    """
    check_server()
    if dashboard:
        check_dashboard()
    if client_port is not None:
        check_ray("Ray Client programs", extra="tasks")
    for file in (ssl_certfile, ssl_keyfile):
        if file is not None and not file.is_file():
            raise InvalidRequest(f"there is no file {file}; --ssl-certfile and --ssl-keyfile want PEM files")
    if ssl_keyfile is not None and ssl_certfile is None:
        raise InvalidRequest("--ssl-keyfile is of no use without --ssl-certfile")
    options = lazy_imports.ServerOptions(
        host=host,
        port=port,
        client_port=client_port,
        dashboard=has_dashboard() if dashboard is None else dashboard,
        public_url=None if public_url is None else _url(public_url),
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        insecure_http=insecure_http,
        allowed_hosts=tuple(allowed_host or ()),
        allowed_origins=tuple(allowed_origin or ()),
        access_log=access_log,
    )
    environ = os.environ if store is None else {**os.environ, STORE_VARIABLE: store}
    scheduler = lazy_imports.ServedScheduler.open(config, environ=environ)
    lazy_imports.serve(scheduler, options, say=lambda line: typer.echo(line, err=True))


def _url(given: str) -> str:
    try:
        return server_url(given)
    except ValueError as error:
        raise InvalidRequest(f"--public-url: {error}") from None
