"""Draws the pictures of who calls whom, and in which file.

Write them anew with `python -m tests.docs.sequence_pictures`; a test holds them to this file, and the files
that they name to the source tree.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COLUMN, ROW, TOP, MARGIN = 265, 46, 78, 120


@dataclass(frozen=True)
class Step:
    """One arrow: from and to which column, what is said, and where that is written."""

    source: int
    target: int
    words: str
    file: str
    #: Drawn in red: the step that goes wrong.
    wrong: bool = False


@dataclass(frozen=True)
class Picture:
    """Columns, and the arrows between them from top to bottom."""

    name: str
    title: str
    columns: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    #: The page that shows it; the files of another program are not in this tree.
    page: str = "architecture.md"
    of_this_tree: bool = True


CALLER, STORE, ENGINE, STATE, CLUSTER = range(5)
JOB = Picture(
    name="way-of-a-job.svg",
    title="The way of one job: from submit_job over store, engine and state to a cluster, and back",
    columns=(
        ("caller", "client, service"),
        ("store", "SQLite"),
        ("engine", "loops, no decisions"),
        ("SchedulerState", "decisions, no I/O"),
        ("cluster", "Ray"),
    ),
    steps=(
        Step(CALLER, STORE, "add: the job is on disk", "store/accept.py"),
        Step(STORE, ENGINE, "something changed: read it", "engine/store_io.py"),
        Step(ENGINE, STATE, "JobsAccepted", "core/events.py"),
        Step(STATE, STATE, "one pass: filter, score, choose", "core/placement/plan.py"),
        Step(STATE, ENGINE, "ReadJobs, then WriteMoves: PLACED", "core/placer.py"),
        Step(ENGINE, STORE, "compare-and-set, with its event", "engine/store_io.py"),
        Step(ENGINE, STATE, "MovesWritten", "core/state.py"),
        Step(STATE, ENGINE, "SendAttempt", "core/supervisor.py"),
        Step(ENGINE, CLUSTER, "upload, start", "engine/send.py"),
        Step(ENGINE, STATE, "SendEnded: SUBMITTED is written", "core/lifecycle/transitions.py"),
        Step(STATE, ENGINE, "ObserveAttempts, when it is time", "core/pacing.py"),
        Step(ENGINE, CLUSTER, "observe", "engine/cluster_io.py"),
        Step(ENGINE, STATE, "AttemptsObserved: what it means", "core/lifecycle/observe.py"),
        Step(STATE, STATE, "failed? try again, or not", "core/lifecycle/retry.py"),
        Step(STATE, ENGINE, "ReadLog, then WriteMoves: SUCCEEDED", "core/lifecycle/transitions.py"),
        Step(ENGINE, STORE, "the end, with the log", "store/jobs.py"),
        Step(STORE, CALLER, "those who wait are told", "service/events.py"),
    ),
)
PROGRAM, BRIDGE, CONNECTION, HUB, ACTOR = range(5)
CALL = Picture(
    name="way-of-a-remote-call.svg",
    title="The way of one call of a remote actor: from the program over the bridge to the hub, and back",
    columns=(
        ("program", "on the home cluster"),
        ("bridge", "an actor at home"),
        ("connection", "Ray Client"),
        ("hub", "an actor over there"),
        ("user's actor", "over there"),
    ),
    steps=(
        Step(PROGRAM, BRIDGE, "method.remote(): a ref at home", "tasks/wire/handle.py"),
        Step(BRIDGE, BRIDGE, "in the order of the calls", "tasks/wire/bridge.py"),
        Step(BRIDGE, BRIDGE, "pack the arguments", "tasks/wire/serialization.py"),
        Step(BRIDGE, CONNECTION, "several calls in one request", "tasks/wire/connection.py"),
        Step(CONNECTION, HUB, "submit", "tasks/wire/connection.py"),
        Step(HUB, ACTOR, "call", "tasks/wire/hub.py"),
        Step(ACTOR, HUB, "result or error", "tasks/wire/hub.py"),
        Step(HUB, BRIDGE, "answers, as they come", "tasks/wire/connection.py"),
        Step(BRIDGE, PROGRAM, "the value of the ref: ray.get", "tasks/wire/bridge.py"),
    ),
)


def _older_way(
    name: str, page: str, title: str, columns: tuple[tuple[str, str], ...], words: tuple[str, ...]
) -> Picture:
    """The way of a `runtime_env` through the older package, in one language."""
    program, submit, balancer, dispatcher, mac = range(5)
    api, manager, dispatch = "submit_job()", "TaskLifecycleManager.submit_job()", "Dispatcher.dispatch_job()"
    merge = "_prepare_runtime_env_for_cluster_target()"
    arrows = (
        (program, submit, api, False),
        (submit, submit, "app/client_api/submit_job.py", True),
        (submit, balancer, manager, False),
        (balancer, balancer, "PolicyEngine.schedule_job()", False),
        (balancer, dispatcher, dispatch, False),
        (dispatcher, dispatcher, merge, True),
        (dispatcher, mac, "JobSubmissionClient.submit_job()", False),
    )
    steps = tuple(
        Step(source, target, said, file, wrong)
        for said, (source, target, file, wrong) in zip(words, arrows, strict=True)
    )
    return Picture(name=name, title=title, columns=columns, steps=steps, page=page, of_this_tree=False)


OLDER = _older_way(
    "older-way-of-runtime-env.svg",
    "why-the-wrong-cluster.md",
    "Job two in the older package: the environment of centos is filled in before mac is chosen",
    (
        ("main program", "on the Mac"),
        ("submit_job", "client_api"),
        ("balancer", "lifecycle, policy"),
        ("dispatcher", "scheduler_core"),
        ("mac", "Ray's dashboard"),
    ),
    (
        "job two, no runtime_env",
        "takes the first cluster's: centos",
        "job two + environment of centos",
        "decides: mac",
        "mac + environment of centos",
        "the job's own values win: centos",
        "conda: ts, /home/zorro/",
    ),
)
OLDER_ZH = _older_way(
    "older-way-of-runtime-env.zh-CN.svg",
    "why-the-wrong-cluster.zh-CN.md",
    "旧包中的任务二：选定 mac 之前，centos 的环境已经填入",
    (
        ("主控程序", "在 Mac 上"),
        ("submit_job", "client_api"),
        ("负载均衡", "lifecycle、policy"),
        ("分发", "scheduler_core"),
        ("mac", "Ray dashboard"),
    ),
    (
        "任务二，没有 runtime_env",
        "填入第一个集群（centos）的环境",
        "任务二 + centos 的环境",
        "决定：mac",
        "mac + centos 的环境",
        "作业已有的值优先：仍是 centos",
        "conda: ts、/home/zorro/",
    ),
)
PICTURES = (JOB, CALL, OLDER, OLDER_ZH)


def drawn(picture: Picture) -> str:
    """Return a picture as SVG."""
    xs = [MARGIN + COLUMN * number for number in range(len(picture.columns))]
    width, height = xs[-1] + MARGIN + 40, TOP + ROW * len(picture.steps) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="t" font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="t">{escape(picture.title)}</title>',
        '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 10 5 0 10z" fill="#475569"/></marker></defs>',
        "<style>text { fill: #0f172a; text-anchor: middle } .h { font-weight: 600 } "
        ".s { font-size: 11px; fill: #475569 } .f { font-size: 10.5px; fill: #4f46e5; "
        "font-family: ui-monospace, monospace } .line { stroke: #475569; stroke-width: 1.3; fill: none; "
        "marker-end: url(#a) } .life { stroke: #cbd5e1; stroke-width: 1.2 }</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#f8fafc"/>',
    ]
    for x, (name, about) in zip(xs, picture.columns, strict=True):
        lines += [
            f'<path class="life" d="M{x} 58V{height - 14}"/>',
            f'<rect x="{x - 80}" y="14" width="160" height="44" rx="6" fill="#eef2ff" stroke="#6366f1"/>',
            f'<text class="h" x="{x}" y="33">{escape(name)}</text>',
            f'<text class="s" x="{x}" y="49">{escape(about)}</text>',
        ]
    for number, step in enumerate(picture.steps):
        lines += _arrow(step, xs, TOP + ROW * number + 22)
    return "\n".join([*lines, "</svg>\n"])


def _arrow(step: Step, xs: list[int], y: int) -> list[str]:
    source, target = xs[step.source], xs[step.target]
    if source == target:
        style = "text-anchor: start" + ("; fill: #b91c1c; font-weight: 600" if step.wrong else "")
        path = f"M{source} {y - 8}h22v16h-20"
        return [
            f'<path class="line" d="{path}"/>',
            f'<text x="{source + 30}" y="{y - 2}" style="{style}">{escape(step.words)}</text>',
            f'<text class="f" x="{source + 30}" y="{y + 12}" style="text-anchor: start">{step.file}</text>',
        ]
    gap = 2 if target > source else -2
    middle = (source + target) // 2
    return [
        f'<path class="line" d="M{source} {y}H{target - gap}"/>',
        f'<text x="{middle}" y="{y - 6}">{escape(step.words)}</text>',
        f'<text class="f" x="{middle}" y="{y + 14}">{step.file}</text>',
    ]


def main() -> None:
    """Write all pictures."""
    for picture in PICTURES:
        (IMAGES / picture.name).write_text(drawn(picture))


if __name__ == "__main__":
    main()
