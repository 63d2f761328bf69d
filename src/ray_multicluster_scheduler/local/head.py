"""Start one Ray head, ask whether it is ready, and find out why it is not.

Ray binds all of its sockets to loopback, those of workers included, only when the node's address is
127.0.0.1. On Linux `ray start` replaces that address by the public one of the machine, unless it is told to
behave as on macOS (`RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0`). With another address, be it 127.0.0.2, the GCS,
the raylet, the workers and the metrics listen on every interface, and whoever reaches them can run code
here. So all heads share one address and differ in their ports.

There is no `--block`, because a blocking `ray start` ends the whole head as soon as one of its processes
dies, and a sandbox must be able to show how a head behaves that has lost its raylet or its GCS.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ray_multicluster_scheduler.local.processes import MARK
from ray_multicluster_scheduler.local.spec import LOOPBACK, Head, HeadSpec

#: Small, so that several heads fit on a laptop; Ray spills larger objects to its temporary directory.
OBJECT_STORE_BYTES = 150_000_000
#: A healthy head answers in milliseconds; on a machine that starts several heads it may take seconds.
PROBE_TIMEOUT_S = 5.0
_LAST_LINES = 15


def launch(
    spec: HeadSpec, head: Head, token_file: Path | None, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Run `ray start` for a head in a session of its own; it ends when Ray's daemons run."""
    with head.log.open("wb") as log:
        return subprocess.Popen(
            command(spec, head),
            env=environment(spec, head, token_file, environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=head.temp_dir.parent,
            start_new_session=True,
            preexec_fn=_heed_interrupts,  # noqa: PLW1509 - it takes no lock
        )


def _heed_interrupts() -> None:
    """Enable SIGINT, which shells disable for background programs: `ray.cancel` needs it in workers."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(spec: HeadSpec, head: Head) -> list[str]:
    """Return the `ray start` command line, with a fixed value for every port."""
    ports = head.ports
    options: dict[str, object] = {
        "node-ip-address": LOOPBACK,
        "port": ports.gcs,
        "dashboard-host": LOOPBACK,
        "dashboard-port": ports.dashboard,
        "ray-client-server-port": ports.client,
        "dashboard-agent-listen-port": ports.agent_http,
        "dashboard-agent-grpc-port": ports.agent_grpc,
        "runtime-env-agent-port": ports.runtime_env_agent,
        "node-manager-port": ports.node_manager,
        "object-manager-port": ports.object_manager,
        "metrics-export-port": ports.node_metrics,
        "min-worker-port": ports.workers[0],
        "max-worker-port": ports.workers[-1],
        "temp-dir": head.temp_dir,
        "num-cpus": spec.cpus,
        "num-gpus": spec.gpus,
        "object-store-memory": OBJECT_STORE_BYTES,
        "include-dashboard": "true",
        "log-style": "record",
        "log-color": "false",
    }
    if spec.memory is not None:
        options["memory"] = spec.memory
    if spec.resources:
        options["resources"] = json.dumps(dict(spec.resources))
    flags = [f"--{name}={value}" for name, value in options.items()]
    python = spec.python or sys.executable
    return [python, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats", *flags]


def environment(
    spec: HeadSpec, head: Head, token_file: Path | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a head, which its jobs inherit.

    Variables of the user for Ray or for us (addresses, tokens, modes) are left out: they are about other
    clusters. HOME stays, because pip and conda keep their settings there. Because the authentication mode is
    set here, Ray neither reads a token from `~/.ray` nor writes one there.
    """
    clean = {name: value for name, value in environ.items() if not name.startswith(("RAY_", "RAYMC_"))}
    auth = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
        if token_file
        else {"RAY_AUTH_MODE": "disabled"}
    )
    python_dir = Path(spec.python or sys.executable).parent
    return {
        **clean,
        # `python` in the entrypoint of a job is the interpreter that has Ray.
        "PATH": f"{python_dir}:{environ.get('PATH', '/usr/bin:/bin')}",
        "TMPDIR": str(head.temp_dir),
        "RAY_USAGE_STATS_ENABLED": "0",
        # With it, one in some ten helper processes of Ray Client dies when it is forked (Ray's issue 63202).
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        **(spec.env or {}),
        **auth,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "AUTOSCALER_METRIC_PORT": str(head.ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(head.ports.dashboard_metrics),
        MARK: head.mark,
    }


def answers(head: Head, token: str | None) -> bool:
    """Tell whether a head can take work: it shows a living node, and Ray Client listens.

    `/api/version` would not do: it answers before the node is there, and for a minute after the GCS died.
    """
    headers = {"User-Agent": "ray-multicluster-scheduler"}  # Ray 2.9 answers 500 without one
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection(LOOPBACK, head.ports.dashboard, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/api/v0/nodes", headers=headers)
        nodes = json.load(connection.getresponse())["data"]["result"]["result"]
        socket.create_connection((LOOPBACK, head.ports.client), timeout=PROBE_TIMEOUT_S).close()
        return any(node["state"] == "ALIVE" for node in nodes)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return False
    finally:
        connection.close()


def last_words(head: Head) -> str:
    """Return the end of the logs of a head that did not start, indented for an error message."""
    logs = head.temp_dir / "session_latest" / "logs"
    paths = [
        head.log,
        *(logs / name for name in ("gcs_server.err", "raylet.err", "dashboard.err", "dashboard.log")),
    ]
    parts = []
    for path in paths:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if lines:
            parts += [f"  {path.name}:", *(f"    {line}" for line in lines[-_LAST_LINES:])]
    return "\n".join(parts) or "  (it wrote nothing)"
