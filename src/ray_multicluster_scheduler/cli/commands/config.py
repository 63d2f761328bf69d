"""`raymc config`: check a clusters.yaml, and let a server read it again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, PlainCommand
from ray_multicluster_scheduler.cli.registry import CommandGroup
from ray_multicluster_scheduler.cli.session import open_config
from ray_multicluster_scheduler.client.display import plain_signs, sign
from ray_multicluster_scheduler.cluster_health.diagnosis import (
    REMOVE_CHECKOUT,
    Verdict,
    other_packages_problem,
)
from ray_multicluster_scheduler.errors import ConfigInvalid, ConfigNotFound, InvalidRequest
from ray_multicluster_scheduler.model.cluster import ClusterSpec

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config


config_app = typer.Typer(
    cls=CommandGroup, help="Check the configuration, or let a server read it again.", no_args_is_help=True
)


@config_app.command(cls=PlainCommand)
def check(
    file: Annotated[Path | None, typer.Argument(help="The clusters.yaml to check.")] = None,
    config: ConfigOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check a clusters.yaml and list every problem with its line; calls no cluster (`raymc doctor` does)."""
    if file and config:
        raise typer.BadParameter("name the file once: as FILE or with --config")
    try:
        checked = open_config(file or config)
    except (ConfigInvalid, ConfigNotFound) as error:
        if not as_json:
            raise
        problems = error.problems if isinstance(error, ConfigInvalid) else [str(error)]
        write_json({"ok": False, "problems": problems})
        raise typer.Exit(2) from None
    if as_json:
        write_json(_summary(checked))
    else:
        _show(checked)


@config_app.command(cls=PlainCommand)
def reload(config: ConfigOption = None) -> None:
    """Let `raymc serve` read its clusters.yaml again; jobs go on, and a wrong file changes nothing.

    Where a variable, `scheduler.address` or `raymc login` names a server it is that one, which wants the
    role admin; else those of this file on this machine.
    """
    server = lazy_imports.named_server(os.environ, config)
    found = None if server else open_config(config)
    if found and found.settings.address:
        server = lazy_imports.server_at(found.settings.address, named_by=str(found.path), environ=os.environ)
    if server is not None:
        service = lazy_imports.HttpService(server, user="")
        try:
            told = service.reload_config()
        finally:
            service.close()
        changed = [f"{what}: {', '.join(names)}" for what, names in told.items() if names]
        typer.echo(f"{server.url}: {'; '.join(changed) or 'nothing has changed'}")
    elif found is not None:
        _reload_here(found.path)


def _reload_here(path: Path) -> None:
    servers = lazy_imports.running_servers(lazy_imports.state_dir(path, os.environ))
    if not servers:
        raise InvalidRequest(
            f"no `raymc serve` of {path} runs on this machine; other programs read the file when they start"
        )
    for process in servers:
        os.kill(process, signal.SIGHUP)
        typer.echo(f"process {process} reads {path} again; its log says what has changed")


def _summary(config: Config) -> dict[str, Any]:
    clusters = [
        {
            "name": spec.name,
            "head_address": spec.head_address,
            "dashboard": spec.dashboard,
            "tags": spec.tags,
            "runtime_env": list(spec.runtime_env),
            "env_vars": _variables(spec),
        }
        for spec in config.clusters
    ]
    return {"ok": True, "path": str(config.path), "clusters": clusters, "warnings": _warnings(config)}


def _warnings(config: Config) -> dict[str, str]:
    """Return by cluster what is valid and yet likely to surprise."""
    found = {spec.name: other_packages_problem(spec) for spec in config.clusters}
    return {name: problem for name, problem in found.items() if problem is not None}


def _show(config: Config) -> None:
    table = Table("cluster", "addresses", "tags", "environment", box=None, pad_edge=False)
    for spec in config.clusters:
        addresses = f"{spec.dashboard}\nray://{spec.head_address}"
        cells = (spec.name, addresses, ", ".join(spec.tags), ", ".join(_environment(spec)))
        table.add_row(*(Text(cell or "–", overflow="fold") for cell in cells))
    count = "1 cluster" if len(config.clusters) == 1 else f"{len(config.clusters)} clusters"
    console = stdout_console()
    console.print(
        Text.assemble(sign(Verdict.OK, plain=plain_signs(console)), f" {config.path}: {count}"),
        soft_wrap=True,
    )
    console.print(table)
    for name, problem in _warnings(config).items():
        mark = sign(Verdict.NOTE, plain=plain_signs(console))
        console.print(Text.assemble(mark, f" cluster {name!r}: {problem}; {REMOVE_CHECKOUT}"), soft_wrap=True)


def _environment(spec: ClusterSpec) -> list[str]:
    return [key for key in spec.runtime_env if key != "env_vars"] + [f"${name}" for name in _variables(spec)]


def _variables(spec: ClusterSpec) -> list[str]:
    """Name the variables that are set. Values stay where they are: they may be secrets."""
    return sorted(spec.runtime_env.get("env_vars", {}))
