"""Entry point of `raymc`: collects the commands and turns our errors into one clear message.

Exit codes: 0 all is well, 1 a job or a check failed, 2 usage or configuration, 130 interrupted.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from ray_multicluster_scheduler.cli.clusters_cmd import clusters
from ray_multicluster_scheduler.cli.config_cmd import config_app
from ray_multicluster_scheduler.cli.doctor_cmd import doctor
from ray_multicluster_scheduler.cli.local_cmd import local_app
from ray_multicluster_scheduler.errors import SchedulerError

app = typer.Typer(
    name="raymc",
    help="Run work on many Ray clusters as if they were one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(config_app, name="config")
app.add_typer(local_app, name="local")
app.command()(clusters)
app.command()(doctor)


def main() -> None:
    """Run the command line; a user's mistake never shows a traceback."""
    try:
        app()
    except SchedulerError as error:
        Console(stderr=True).print(
            f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
