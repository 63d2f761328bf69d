"""What why-the-wrong-cluster.md says about Ray is true of the Ray that is installed."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ray_multicluster_scheduler.local import Head, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class Programs:
    """Runs programs that use Ray's own clients, each in a process with an empty home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def answer(self, program: str, *arguments: str, **environ: str) -> Any:
        """Run a program and return what it assigned to `answer`."""
        code = f"import json, sys\n{textwrap.dedent(program)}\nprint('answer:' + json.dumps(answer))"
        plain = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**plain, "HOME": str(self._home), "RAY_AUTH_MODE": "disabled", **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (line,) = (each for each in done.stdout.splitlines() if each.startswith("answer:"))
        return json.loads(line.removeprefix("answer:"))


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def helper_processes(head: Head) -> set[str]:
    """Name the logs of the specific-servers that a head has ever started: one per Ray Client connection."""
    return {path.name for path in head.temp_dir.glob("session_latest/logs/ray_client_server_2*.err")}


def test_an_environment_variable_overrules_the_address_that_the_client_is_given(
    sandbox: Sandbox, programs: Programs
) -> None:
    centos, mac = (sandbox.heads[name].dashboard for name in ("centos", "mac"))
    program = """
        from ray.job_submission import JobSubmissionClient
        answer = JobSubmissionClient(sys.argv[1]).get_address()
    """
    for variable in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        assert programs.answer(program, mac, **{variable: centos}) == centos
    assert programs.answer(program, mac) == mac


def test_inside_a_job_the_client_submits_to_the_jobs_own_cluster(
    sandbox: Sandbox, programs: Programs, tmp_path: Path
) -> None:
    script = tmp_path / "inside.py"
    script.write_text(
        "import sys\nfrom ray.job_submission import JobSubmissionClient\n"
        "print('client of', JobSubmissionClient(sys.argv[1]).get_address())\n"
    )
    centos, mac = (sandbox.heads[name].dashboard for name in ("centos", "mac"))
    log = programs.answer(
        """
        import asyncio
        from ray.job_submission import JobSubmissionClient
        client = JobSubmissionClient(sys.argv[1])
        job = client.submit_job(entrypoint=sys.argv[2])

        async def log():
            return "".join([lines async for lines in client.tail_job_logs(job)])

        answer = asyncio.run(log())
        """,
        centos,
        f"python {script} {mac}",
    )
    assert f"client of {centos}" in log


def test_a_second_init_keeps_the_first_cluster_and_the_first_environment(
    sandbox: Sandbox, programs: Programs
) -> None:
    addresses = [f"ray://{sandbox.heads[name].client_address}" for name in ("centos", "mac")]
    seen = programs.answer(
        """
        import ray
        for address, home in zip(sys.argv[1:], ("/home/zorro", "/Users/zorro")):
            ray.init(address, runtime_env={"env_vars": {"home_dir": home}}, ignore_reinit_error=True)

        @ray.remote(num_cpus=0)
        def look():
            import os
            return os.environ["home_dir"], ray.get_runtime_context().gcs_address

        answer = ray.get(look.remote())
        """,
        *addresses,
    )
    assert seen == ["/home/zorro", sandbox.heads["centos"].gcs_address]


@pytest.mark.parametrize("scheme", ["ray", "http"])
def test_a_job_client_starts_a_helper_process_where_it_is_given_a_ray_client_address(
    sandbox: Sandbox, programs: Programs, scheme: str
) -> None:
    head = sandbox.heads["mac"]
    before = helper_processes(head)
    address = f"ray://{head.client_address}" if scheme == "ray" else head.dashboard
    program = (
        "from ray.job_submission import JobSubmissionClient\n"
        "answer = JobSubmissionClient(sys.argv[1]).get_address()"
    )
    assert programs.answer(program, address) == head.dashboard
    assert len(helper_processes(head) - before) == (1 if scheme == "ray" else 0)


def test_one_helper_process_per_connection_on_the_cluster_that_was_connected_to(
    sandbox: Sandbox, programs: Programs
) -> None:
    centos, mac = sandbox.heads["centos"], sandbox.heads["mac"]
    before = helper_processes(centos), helper_processes(mac)
    tries = programs.answer(
        """
        import ray
        answer = 0
        def connect(address):
            global answer
            answer += 1
            try:
                return ray.init(address, allow_multiple=True)
            except ConnectionAbortedError as problem:  # another head of this machine had taken the port
                if "Starting Ray client server failed" not in str(problem) or answer > 5:
                    raise
                return connect(address)
        connections = [connect(address) for address in sys.argv[1:]]
        for connection in connections:
            connection.disconnect()
        """,
        *[f"ray://{mac.client_address}"] * 2,
    )
    assert 2 <= len(helper_processes(mac) - before[1]) <= tries
    assert helper_processes(centos) == before[0]
