"""What why-the-wrong-cluster.md says about Ray is true of the Ray that is installed."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.conda_stand_in import StandInConda

from ray_multicluster_scheduler.local import Head, HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow]

#: What programs share: another head of this machine may have taken the port that a helper process wants.
CONNECT = """
import json, sys

tries = 0
def connect(address, **options):
    global tries
    tries += 1
    import ray
    try:
        return ray.init(address, **options)
    except ConnectionAbortedError as problem:
        if "Starting Ray client server failed" not in str(problem) or tries > 5:
            raise
        return connect(address, **options)
"""


class Programs:
    """Runs programs that use Ray's own clients, each in a process with an empty home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def answer(self, program: str, *arguments: str, **environ: str) -> Any:
        """Run a program and return what it assigned to `answer`."""
        code = (
            f"import json, sys\n{CONNECT}\n{textwrap.dedent(program)}\nprint('answer:' + json.dumps(answer))"
        )
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
        connections = [connect(address, allow_multiple=True) for address in sys.argv[1:]]
        for connection in connections:
            connection.disconnect()
        answer = tries
        """,
        *[f"ray://{mac.client_address}"] * 2,
    )
    assert 2 <= len(helper_processes(mac) - before[1]) <= tries
    assert helper_processes(centos) == before[0]


@pytest.fixture(scope="module")
def head_with_conda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A head that was started where `conda` is on the path, with an environment `k8s`."""
    folder = tmp_path_factory.mktemp("conda")
    conda = StandInConda(folder / "miniconda3")
    conda.environment("k8s")
    with Sandbox(folder / "sandbox", [HeadSpec(name="mac", cpus=1, env=conda.variables())]) as sandbox:
        yield sandbox.heads["mac"]


@pytest.mark.parametrize(
    ("runtime_env", "started_as"),
    [
        ({}, sys.executable),
        ({"env_vars": {"home_dir": "/Users/zorro/"}}, sys.executable),
        ({"conda": "k8s", "env_vars": {"home_dir": "/Users/zorro/"}}, "python"),
    ],
    ids=["without", "variables", "conda"],
)
def test_a_helper_process_is_plain_python_with_conda_and_the_heads_own_python_without(
    head_with_conda: Head, programs: Programs, runtime_env: dict[str, Any], started_as: str
) -> None:
    (words,) = programs.answer(
        """
        import pathlib

        def helpers():
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = path.read_bytes().decode().split("\\0")
                except OSError:
                    continue  # it ended while we looked
                if {"--mode=specific-server", f"--address={sys.argv[2]}"} <= set(words):
                    yield words

        before = list(helpers())
        connect(sys.argv[1], runtime_env=json.loads(sys.argv[3]))
        answer = [words for words in helpers() if words not in before]
        """,
        f"ray://{head_with_conda.client_address}",
        head_with_conda.gcs_address,
        json.dumps(runtime_env),
    )
    print(f"runtime_env {json.dumps(runtime_env)}: {' '.join(words)}")
    assert words[:3] == [started_as, "-m", "ray.util.client.server"]
