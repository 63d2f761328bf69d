"""`raymc pipeline`: preprocess a file with operators, on Ray Data or pandas."""

from __future__ import annotations

import json
import shlex
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import say, stdout_console
from ray_multicluster_scheduler.cli.follow_jobs import follow, stopping_on_interrupt, tell_end
from ray_multicluster_scheduler.cli.options.common import ConfigOption
from ray_multicluster_scheduler.cli.options.completion import complete_clusters
from ray_multicluster_scheduler.cli.options.submit import json_object
from ray_multicluster_scheduler.cli.session import check_cluster, opened
from ray_multicluster_scheduler.client.display import duration, number
from ray_multicluster_scheduler.client.packing import handed_over
from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.errors import InvalidRequest, PipelineFailed
from ray_multicluster_scheduler.service.request import JobRequest
from raymc_pipeline import PACKAGES, REPORT_LINE, check_extra

if TYPE_CHECKING:
    from raymc_pipeline.plan import Plan
    from raymc_pipeline.report import Report

#: As many as fit beside each other in a common terminal.
SHOWN_COLUMNS = 6


def _ray(about: str, **more: Any) -> Any:
    return typer.Option(help=about, rich_help_panel="Engine ray", **more)


def pipeline(
    what: Annotated[
        Literal["list"] | None, typer.Argument(metavar="[list]", help="list: show the operators.")
    ] = None,
    *,
    engine: Annotated[Literal["ray", "pandas"], typer.Option(help="pandas is for small data.")] = "ray",
    operators: Annotated[
        list[str] | None, typer.Option(metavar="NAME...", help="What to do, in this order.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="PATH|URI", help="CSV, Parquet or JSON lines; s3://, hdfs://, gs://."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="PATH|URI", help="Where the result goes: .parquet or .csv.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="NAME...", help="Work on these only; else on all that fit.")
    ] = None,
    params: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help='Per operator: {"OPERATOR": {"power": 2}}.')
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Run the pipeline this many times and compare the times.")
    ] = 1,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the times: .json for programs, .png as a plot.")
    ] = None,
    ray_address: Annotated[
        str | None, _ray("host:port, ray://host:port or auto; else a cluster of its own.", metavar="ADDRESS")
    ] = None,
    ray_runtime_env_json: Annotated[
        str | None, _ray("The environment of the workers.", metavar="JSON|@FILE")
    ] = None,
    ray_namespace: Annotated[str | None, _ray("Namespace for named actors.", metavar="NAME")] = None,
    cluster: Annotated[
        str | None,
        _ray(
            "Run it as a job on this configured cluster, or on the best one.",
            metavar="NAME|auto",
            autocompletion=complete_clusters,
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Preprocess a file: scale, encode, fill in, tokenize, with Ray Data or with pandas.

    `raymc pipeline list` shows the operators with their parameters. Exit code 1: an operator failed.
    """
    check_extra()
    if what == "list":
        _list()
        return
    from raymc_pipeline.plan import make_plan  # noqa: PLC0415 - needs the extra

    if source is None:
        also = "" if operators else "; --operators too: what to do with it, `raymc pipeline list` shows all"
        raise InvalidRequest(f"--input is missing: the file to work on{also}")
    _check_report(report)
    parameters = json_object("--params", _text("--params", params))
    plan = make_plan(operators or (), source, output=output, columns=columns, params=parameters)
    environment = _text("--ray-runtime-env-json", ray_runtime_env_json)
    rays = {
        "--ray-address": ray_address,
        "--ray-runtime-env-json": environment,
        "--ray-namespace": ray_namespace,
    }
    if engine == "pandas":
        _refuse("--engine pandas runs in this process", {**rays, "--cluster": cluster})
    if cluster is not None:
        _refuse("--cluster sends a job", {"--ray-address": ray_address, "--ray-namespace": ray_namespace})
    _check_first(plan, engine, ray_address, environment, report, on_cluster=cluster is not None)
    if cluster is not None:
        result = run_as_job(config, plan, cluster, environment, repeats=repeats)
    else:
        result = _run_here(
            plan, None if engine == "pandas" else (ray_address, environment, ray_namespace), repeats
        )
    _show(result)
    _keep(result, report)


def _check_first(
    plan: Plan,
    engine: str,
    address: str | None,
    environment: str | None,
    report: Path | None,
    *,
    on_cluster: bool,
) -> None:
    """Refuse what can be known to be wrong before anything is started."""
    from raymc_pipeline import run  # noqa: PLC0415 - needs the extra

    run.check_address(address)
    option = "--ray-runtime-env-json"
    run.check_environment(option, json_object(option, environment))
    if report is not None:
        run.check_writable("--report", report, is_file=True)
    if not on_cluster and not (address or "").startswith("ray://"):  # else the files are over there
        run.check_here(plan, one_file=engine == "pandas")


def _run_here(plan: Plan, target: tuple[str | None, str | None, str | None] | None, repeats: int) -> Report:
    from raymc_pipeline.run import RayTarget, run_pipeline  # noqa: PLC0415 - the extra

    on_ray = None
    if target is not None:
        address, environment, namespace = target
        on_ray = RayTarget(address=address, runtime_env_json=environment, namespace=namespace)
    try:
        return run_pipeline(plan, on_ray=on_ray, repeats=repeats)
    except PipelineFailed as problem:
        say(f"failed: {problem}", style="red")
        raise typer.Exit(1) from None


def _text(option: str, value: str | None) -> str | None:
    """Return the value of an option, or what the file after `@` holds."""
    if value is None or not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidRequest(f"{option}: {value[1:]} cannot be read: {problem}") from None


def _refuse(because: str, options: dict[str, str | None]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise InvalidRequest(f"{because}, so {', '.join(given)} would do nothing; leave it out")


def _check_report(report: Path | None) -> None:
    if report is not None and report.suffix not in (".json", ".png"):
        raise InvalidRequest(f"--report: {report} must end in .json or .png")


def _keep(result: Report, report: Path | None) -> None:
    if report is None:
        return
    if report.suffix == ".json":
        report.write_text(result.to_json() + "\n", encoding="utf-8")
    else:
        from raymc_pipeline.report import plot  # noqa: PLC0415 - needs the extra

        plot(result, str(report))


def _show(result: Report) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("step")
    for run in range(1, len(result.runs) + 1):
        table.add_column("time" if len(result.runs) == 1 else f"run {run}", justify="right")
    table.add_column("rows", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("columns", overflow="fold")
    if result.engine == "ray":
        table.add_row("environment", *(duration(run.environment_s or 0.0) for run in result.runs))
    for steps in zip(*(run.steps for run in result.runs), strict=True):
        last = steps[-1]
        memory = "" if last.bytes is None else f"{number(last.bytes / 1024**2)} MiB"
        times = (duration(step.seconds) for step in steps)
        table.add_row(last.name, *times, f"{last.rows:,}", memory, ", ".join(last.columns))
    table.add_row("together", *(duration(run.seconds) for run in result.runs))
    stdout_console().print(table)
    _show_rows(result)


def _show_rows(result: Report) -> None:
    """Show the first rows of a result that is not written to a file."""
    if not (shown := result.runs[-1].first_rows):
        return
    names, *rows = shown
    table = Table(box=None, pad_edge=False)
    for name in names[:SHOWN_COLUMNS]:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row[:SHOWN_COLUMNS]))
    more = f", {SHOWN_COLUMNS} of {len(names)} columns" if len(names) > SHOWN_COLUMNS else ""
    console = stdout_console()
    console.print(Text(f"\nThe first rows{more}; --output keeps them all:", style="dim"))
    console.print(table)


def _list() -> None:
    from raymc_pipeline.operators import OPERATORS  # noqa: PLC0415 - needs the extra

    table = Table(box=None, pad_edge=False)
    for title in ("operator", "columns", "what it does", "parameters"):
        table.add_column(title, overflow="fold")
    for operator in OPERATORS.values():
        words = [
            f"{name}: {each.about}" + ("" if each.required else f" ({each.default!r})")
            for name, each in operator.parameters.items()
        ]
        table.add_row(operator.name, operator.kind, operator.about, "\n".join(words))
    stdout_console().print(table)


# `raymc pipeline --cluster`: the same pipeline as a scheduled job, which carries this package.


def run_as_job(
    config: Path | None, plan: Plan, cluster: str, environment: str | None, *, repeats: int
) -> Report:
    """Submit a plan, follow its log and return its report; `cluster` is a name, or auto for the best one."""
    env = json_object("--ray-runtime-env-json", environment) or {}
    env["py_modules"] = [*env.get("py_modules", ()), PACKAGES[0]]
    words = ["python", "-m", "raymc_pipeline.on_cluster", plan.to_json(), str(repeats)]
    submission_id = f"pipeline_{uuid.uuid4().hex[:12]}"
    request = JobRequest(
        entrypoint=shlex.join(words),
        user=this_user(),
        submission_id=submission_id,
        runtime_env=env,
        preferred_cluster=None if cluster == "auto" else cluster,
    )
    with opened(config) as scheduler, stopping_on_interrupt(scheduler, [submission_id]):
        if request.preferred_cluster is not None:
            check_cluster(scheduler, request.preferred_cluster)
        scheduler.service.submit([handed_over(request, scheduler)])
        scheduler.ensure_scheduled(at_once=True)
        say(f"{submission_id} accepted. Ctrl-C stops it.")
        tell_end(follow(scheduler, submission_id))
        return _report(scheduler.service.log(submission_id) or "")


def _report(log: str) -> Report:
    from raymc_pipeline.report import Report  # noqa: PLC0415 - needs the extra

    lines = [line for line in log.splitlines() if line.startswith(REPORT_LINE)]
    try:
        return Report.from_json(lines[-1].removeprefix(REPORT_LINE))
    except (IndexError, json.JSONDecodeError):
        raise PipelineFailed("the job succeeded, but its log holds no report") from None
