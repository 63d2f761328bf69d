"""`raymc submit`: submit a job or an array of jobs, and wait for it while showing its log."""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.commands.explain import show_plan
from ray_multicluster_scheduler.cli.console import INTERRUPTED, say, stderr_console, write_json, write_line
from ray_multicluster_scheduler.cli.follow_jobs import (
    follow,
    stopping_on_interrupt,
    tell_end,
    tell_ends,
    watch_all,
)
from ray_multicluster_scheduler.cli.options import submit as option
from ray_multicluster_scheduler.cli.options.common import ConfigOption
from ray_multicluster_scheduler.cli.options.submit import (
    entrypoint_of,
    env_of,
    json_object,
    on_unreachable_of,
    resources_of,
    runtime_env_of,
    with_job_options,
)
from ray_multicluster_scheduler.cli.session import check_cluster, find_jobs, leader_name, opened
from ray_multicluster_scheduler.config.find import this_job
from ray_multicluster_scheduler.environment.options import with_env_vars
from ray_multicluster_scheduler.errors import InvalidEntrypoint, InvalidRequest, SchedulerNotStarted
from ray_multicluster_scheduler.service.request import array_of, parse_array

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.service.request import JobRequest
    from ray_multicluster_scheduler.service.views import JobView


# What `raymc submit --no-wait` says: the id, and who schedules.


def tell_accepted(scheduler: Client, accepted: Sequence[JobView], *, as_json: bool) -> None:
    """Write the id (of an array, the group's) to stdout and the story to stderr; or all of it as JSON."""
    leader, group = scheduler.service.leader(), accepted[0].group
    if as_json:
        name = None if leader is None else leader.holder
        found = scheduler.service.get_many([job.submission_id for job in accepted])
        jobs = [found[job.submission_id].model_dump(mode="json") for job in accepted]
        write_json({"group": group, "leader": name, "jobs": jobs})
        return
    write_line(group or accepted[0].submission_id)
    count = "It is" if len(accepted) == 1 else f"{len(accepted)} jobs are"
    if leader is not None:
        say(f"{count} accepted; {leader_name(leader)} schedules.")
    else:
        say(f"{count} accepted.")


# What a person sees while a large directory is packed: how much of it was read.


#: A directory that is read in no time is not worth a line.
WORTH_A_LINE_BYTES = 20 * 1024**2
#: How often a line is written where no terminal is.
EVERY_S = 10.0


@contextmanager
def packing_display() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for (bytes read, bytes in all): a moving line on a terminal, few lines elsewhere."""
    console = stderr_console()
    if console.is_terminal:
        status = console.status("")

        def show(done: int, total: int) -> None:
            status.start()  # not before: most jobs have nothing to pack
            status.update(f"packing the environment: {_read(done, total)}")

        try:
            yield show
        finally:
            status.stop()
        return
    said_at = float("-inf")

    def tell(done: int, total: int) -> None:
        nonlocal said_at
        if total >= WORTH_A_LINE_BYTES and monotonic() - said_at >= EVERY_S:
            said_at = monotonic()
            say(f"packing the environment: {_read(done, total)}")

    yield tell


def _read(done: int, total: int) -> str:
    return f"{done / 1024**2:.1f} of {total / 1024**2:.1f} MiB were read"


#: Writes jobs to the store and returns them.
Accept = Callable[[], "Sequence[JobView]"]
T = TypeVar("T")
#: With `auto`, a script that lies here takes this directory along without a question.
WORKING_DIR_VARIABLE = "RAY_MULTICLUSTER_WORKING_DIR"


@with_job_options
def submit(
    command: option.Command,
    *,
    config: ConfigOption = None,
    no_wait: option.NoWait = False,
    dry_run: option.DryRun = False,
    as_json: option.SubmitJson = False,
    array: option.Array = None,
    cluster: option.Cluster = None,
    only_cluster: option.OnlyCluster = None,
    only_tag: option.OnlyTag = None,
    cpus: option.Cpus = None,
    gpus: option.Gpus = None,
    memory: option.Memory = None,
    tag: option.Tag = None,
    after: option.After = None,
    on_unreachable: option.OnUnreachable = "wait",
    name: option.Name = None,
    env: option.Env = None,
    working_dir: option.WorkingDir = None,
    runtime_env: option.RuntimeEnv = None,
    runtime_env_json: option.RuntimeEnvJson = None,
    entrypoint_num_cpus: option.EntrypointCpus = None,
    entrypoint_num_gpus: option.EntrypointGpus = None,
    entrypoint_memory: option.EntrypointMemory = None,
    entrypoint_resources: option.EntrypointResources = None,
    entrypoint_label_selector: option.EntrypointLabels = None,
    submission_id: option.SubmissionId = None,
    metadata_json: option.MetadataJson = None,
    **more: Any,
) -> None:
    """Run a command on the best cluster and wait for it, with its log.

    The log goes to stdout, all else to stderr. Exit code: 0 all succeeded, 1 not.

    Ctrl-C stops what this command submitted; --no-wait leaves it running.
    """
    if as_json and not (no_wait or dry_run):
        raise InvalidRequest("--json goes with --no-wait or --dry-run: while waiting, stdout is for the log")
    request = lazy_imports.JobRequest(
        entrypoint=entrypoint_of(command),
        user=lazy_imports.this_user(),
        runtime_env=with_env_vars(
            runtime_env_of(runtime_env, runtime_env_json, working_dir), env_of(env or (), os.environ)
        ),
        job_id=name,
        metadata=json_object("--metadata-json", metadata_json),
        submission_id=submission_id,
        preferred_cluster=cluster,
        only_cluster=only_cluster,
        only_tags=only_tag,
        resource_requirements=resources_of(cpus, gpus, memory),
        tags=tag,
        depends_on=after or (),
        on_unreachable=on_unreachable_of(on_unreachable),
        entrypoint_num_cpus=entrypoint_num_cpus,
        entrypoint_num_gpus=entrypoint_num_gpus,
        entrypoint_memory=entrypoint_memory,
        entrypoint_resources=json_object("--entrypoint-resources", entrypoint_resources),
        entrypoint_label_selector=json_object("--entrypoint-label-selector", entrypoint_label_selector),
        parent=this_job(),
        **more,
    )
    requests = _numbered(request, array)
    with opened(config) as scheduler:
        packed = _packed(scheduler, _with_known_names(scheduler, requests))

        def accept() -> Sequence[JobView]:
            return _with_script(scheduler, packed, command, scheduler.service.submit)

        if dry_run:
            _with_script(scheduler, packed, command, lambda jobs: _dry_run(scheduler, jobs, as_json=as_json))
        elif no_wait:
            hand_over(scheduler, accept, as_json=as_json)
        else:
            wait_for(scheduler, [str(request.submission_id) for request in packed], accept)


def _numbered(request: JobRequest, array: str | None) -> list[JobRequest]:
    """Give each job its id now: Ctrl-C may come before the store has answered."""
    if array is not None:
        return array_of(request, parse_array(array))
    return [request.replaced(submission_id=request.submission_id or f"sub_{uuid.uuid4().hex[:12]}")]


def _with_known_names(scheduler: Client, requests: Sequence[JobRequest]) -> list[JobRequest]:
    """Refuse unknown names: on a command line they are typing mistakes.

    `--after` takes names and groups as well, and they become ids here.
    """
    first = requests[0]
    if first.preferred_cluster is not None:
        check_cluster(scheduler, first.preferred_cluster)
    needed = tuple(job.submission_id for job in find_jobs(scheduler, first.depends_on, None))
    return [request.replaced(depends_on=needed) for request in requests]


def _packed(scheduler: Client, requests: Sequence[JobRequest]) -> list[JobRequest]:
    """Pack local directories once, not once per job of an array, whose variables differ."""
    with packing_display() as progress:
        first = lazy_imports.handed_over(requests[0], scheduler, progress=progress)
    if len(requests) == 1:
        return [first]
    of_each = ((each, each.runtime_env["env_vars"]) for each in requests)
    return [each.replaced(runtime_env={**first.runtime_env, "env_vars": own}) for each, own in of_each]


def _with_script(
    scheduler: Client,
    requests: Sequence[JobRequest],
    command: Sequence[str],
    act: Callable[[Sequence[JobRequest]], T],
) -> T:
    """Do something with jobs; if their script lies here alone, do it again with this directory."""
    try:
        return act(requests)
    except InvalidEntrypoint:
        script = lazy_imports.script_here(requests[0])
        if script is None:
            raise
        _agree_to_send(script, command)
    along = [each.replaced(runtime_env={**(each.runtime_env or {}), "working_dir": "."}) for each in requests]
    return act(_packed(scheduler, along))


def _agree_to_send(script: str, command: Sequence[str]) -> None:
    """Ask whether the current directory is sent along, unless that was settled before; may raise."""
    settled = os.environ.get(WORKING_DIR_VARIABLE)
    if settled not in (None, "", "auto"):
        raise InvalidRequest(f"{WORKING_DIR_VARIABLE} may be 'auto' or unset, not {settled!r}")
    if settled:
        say(f"{script} lies here: this directory goes along ({WORKING_DIR_VARIABLE}=auto).")
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        try:
            agreed = typer.confirm(
                f"{script} lies here and not on the clusters. Send this directory along (--working-dir .)?",
                default=True,
                err=True,
            )
        except typer.Abort:  # Ctrl-C, or the end of the input
            raise typer.Exit(INTERRUPTED) from None
        if agreed:
            return
    raise InvalidEntrypoint(
        f"{script!r} lies here and not on the clusters; to send this directory along: "
        f"raymc submit --working-dir . -- {shlex.join(command)}"
    )


def _dry_run(scheduler: Client, requests: Sequence[JobRequest], *, as_json: bool) -> None:
    plan = scheduler.service.plan(requests[0])
    if as_json:
        write_json(plan.model_dump(mode="json"))
    else:
        show_plan(plan, requests)


def hand_over(scheduler: Client, accept: Accept, *, as_json: bool) -> None:
    """Accept jobs and leave."""
    accepted = _accepted(accept)
    not_started: SchedulerNotStarted | None = None
    try:
        scheduler.ensure_scheduled(at_once=True)
    except SchedulerNotStarted as problem:
        not_started = problem
    tell_accepted(scheduler, accepted, as_json=as_json)
    if not_started is not None:
        say(f"error: {not_started}", style="red")
        raise typer.Exit(1)


def _accepted(accept: Accept) -> Sequence[JobView]:
    """Accept jobs, and say what their submitter should know."""
    accepted = accept()
    for sentence in dict.fromkeys(sentence for job in accepted for sentence in job.warnings):
        say(sentence)
    return accepted


def wait_for(scheduler: Client, ids: Sequence[str], accept: Accept) -> None:
    """Accept jobs under these ids and wait for them; one is shown with its log."""
    with stopping_on_interrupt(scheduler, ids):
        accepted = _accepted(accept)
        scheduler.ensure_scheduled(at_once=True)
        group = accepted[0].group
        named = f"Group {group} ({len(ids)} jobs)" if group else f"{len(ids)} jobs"
        what, it = (ids[0], "it") if len(ids) == 1 and not group else (named, "them")
        say(f"{what} accepted. Ctrl-C stops {it}; to leave {it} running, use --no-wait.")
        if it == "it":
            tell_end(follow(scheduler, ids[0]))
        else:
            tell_ends(scheduler, list(watch_all(scheduler, ids).values()))
