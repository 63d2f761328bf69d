"""Entry point of `raymc`: collects the commands and turns our errors into one clear message.

Exit codes: 0 all is well, 1 a job or a check failed, 2 usage or configuration, 130 interrupted.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Mapping

import typer
from rich.text import Text

from ray_multicluster_scheduler.cli.clusters_cmd import clusters
from ray_multicluster_scheduler.cli.config_cmd import config_app
from ray_multicluster_scheduler.cli.doctor_cmd import doctor
from ray_multicluster_scheduler.cli.drain_cmd import drain, undrain
from ray_multicluster_scheduler.cli.explain_cmd import explain
from ray_multicluster_scheduler.cli.job_cmd import events, info, status
from ray_multicluster_scheduler.cli.jobs_cmd import jobs
from ray_multicluster_scheduler.cli.local_cmd import local_app
from ray_multicluster_scheduler.cli.log_lines import LogLines
from ray_multicluster_scheduler.cli.logs_cmd import logs
from ray_multicluster_scheduler.cli.pipeline_cmd import SeveralWords, pipeline
from ray_multicluster_scheduler.cli.ps_cmd import ps
from ray_multicluster_scheduler.cli.render import say
from ray_multicluster_scheduler.cli.stop_cmd import stop, wait
from ray_multicluster_scheduler.cli.submit_cmd import submit
from ray_multicluster_scheduler.cli.submit_options import CommandAfterDashes
from ray_multicluster_scheduler.cli.top_cmd import top
from ray_multicluster_scheduler.errors import SchedulerError

app = typer.Typer(
    name="raymc",
    help="Run work on many Ray clusters as if they were one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_JOBS, _CLUSTERS = "Jobs", "Clusters"
app.command(rich_help_panel=_JOBS, cls=CommandAfterDashes, options_metavar="[OPTIONS] --")(submit)
app.command(rich_help_panel=_JOBS, cls=SeveralWords)(pipeline)
_ABOUT: Mapping[str, tuple[Callable[..., None], ...]] = {
    _JOBS: (jobs, status, info, logs, events, explain, wait, stop),
    _CLUSTERS: (clusters, ps, doctor, drain, undrain, top),
}
for panel, commands in _ABOUT.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(config_app, name="config", rich_help_panel=_CLUSTERS)
app.add_typer(local_app, name="local", rich_help_panel=_CLUSTERS)


def main() -> None:
    """Run the command line; a user's mistake never shows a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a log may hold what this terminal cannot show
            stream.reconfigure(errors="replace")
    warnings, lines = logging.getLogger("ray_multicluster_scheduler"), LogLines()
    warnings.addHandler(lines)
    try:
        app(prog_name="raymc")
    except SchedulerError as error:
        say(Text.assemble(("error:", "bold red"), f" {error}"))
        sys.exit(2)
    finally:
        warnings.removeHandler(lines)


if __name__ == "__main__":
    main()
