"""The users' own document about Ray's jobs (seeds/004), unchanged, with a server's address."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from tests.support.serve_process import ServeProcess
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RAYMC = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main"]
BIN = Path(sys.executable).parent
#: What the document has; a local cluster's own address.
DOCUMENTED = "http://127.0.0.1:8265"
PATIENCE_S = 240

SCRIPT = """
import os

import ray

ray.init()

print('''This cluster consists of
    {} nodes in total
    {} CPU resources in total
'''.format(len(ray.nodes()), ray.cluster_resources()['CPU']))

@ray.remote
def generate_fibonacci(sequence_size):
    fibonacci = []
    for i in range(0, sequence_size):
        if i < 2:
            fibonacci.append(i)
            continue
        fibonacci.append(fibonacci[i-1] + fibonacci[i-2])
    return len(fibonacci)

sequence_size = 10
results = ray.get([generate_fibonacci.remote(sequence_size) for _ in range(os.cpu_count())])
print(results)
"""
GPU = """
import os
import ray

ray.init()

@ray.remote(num_gpus=1)
class GPUActor:
    def ping(self):
        print("GPU ids: {}".format(ray.get_runtime_context().get_accelerator_ids()["GPU"]))
        print("CUDA_VISIBLE_DEVICES: {}".format(os.environ["CUDA_VISIBLE_DEVICES"]))

@ray.remote(num_gpus=1)
def gpu_task():
    print("GPU ids: {}".format(ray.get_runtime_context().get_accelerator_ids()["GPU"]))
    print("CUDA_VISIBLE_DEVICES: {}".format(os.environ["CUDA_VISIBLE_DEVICES"]))

print("ENTRYPOINT CUDA_VISIBLE_DEVICES: {}".format(os.environ["CUDA_VISIBLE_DEVICES"]))
gpu_actor = GPUActor.remote()
ray.get(gpu_actor.ping.remote())
ray.get(gpu_task.remote())
"""
SDK = """
import time
from ray.job_submission import JobSubmissionClient, JobStatus

client = JobSubmissionClient("http://127.0.0.1:8265")
job_id = client.submit_job(
    entrypoint="python script.py",
    runtime_env={"working_dir": "./"}
)
print(job_id)

def wait_until_status(job_id, status_to_wait_for, timeout_seconds=5):
    start = time.time()
    while time.time() - start <= timeout_seconds:
        status = client.get_job_status(job_id)
        print(f"status: {status}")
        if status in status_to_wait_for:
            break
        time.sleep(1)


wait_until_status(job_id, {JobStatus.SUCCEEDED, JobStatus.STOPPED, JobStatus.FAILED})
logs = client.get_job_logs(job_id)
print(logs)
"""
SUBMIT = "RAY_ADDRESS='http://127.0.0.1:8265' ray job submit --working-dir ./ -- python script.py"
SUBMIT_GPU = (
    "RAY_ADDRESS='http://127.0.0.1:8265' ray job submit --working-dir ./ --entrypoint-num-gpus 1 "
    "-- python gpu.py"
)


class Server(ServeProcess):
    """`raymc serve`, and commands that ask it."""

    def __init__(self, folder: Path, config: Path) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own = {"RAY_MULTICLUSTER_HOME": str(folder / "home"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        super().__init__(folder, config, {**clean, **own})

    def shell(self, command: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a line of the document with the server's address."""
        return subprocess.run(
            ["sh", "-c", command.replace(DOCUMENTED, self.address)],
            cwd=cwd,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def cluster_of(self, job: str) -> str:
        """Ask the queue behind the server where a job ran."""
        with urlopen(f"{self.address}/api/v1/jobs/{job}", timeout=60) as answer:
            return str(json.load(answer)["cluster"])


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two clusters; the GPUs are logical: the entrypoint, the actor and the task hold one each."""
    specs = [HeadSpec(name="first", cpus=2), HeadSpec(name="second", cpus=2, gpus=3)]
    with Sandbox(tmp_path_factory.mktemp("plain-ray"), specs) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def server(heads: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    clusters = {
        name: {"head_address": head.client_address, "dashboard": head.dashboard}
        for name, head in heads.heads.items()
    }
    config = folder / "clusters.yaml"
    settings = {"lost_after_refused_s": 10.0, "unreachable_after_s": 5.0}
    config.write_text(yaml.safe_dump({"clusters": clusters, "scheduler": settings}))
    running = Server(folder, config)
    yield running
    running.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of the user, with what shall stay at home."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "gpu.py").write_text(GPU)
    (tmp_path / "sdk.py").write_text(SDK)
    (tmp_path / "notes.bin").write_bytes(bytes(1000))
    return tmp_path


def test_the_command_of_the_document(server: Server, project: Path) -> None:
    done = server.shell(SUBMIT, cwd=project)
    assert done.returncode == 0, done.stdout
    assert "This cluster consists of" in done.stdout
    assert f"{[10] * (os.cpu_count() or 1)}" in done.stdout
    assert re.search(r"Job 'raysubmit_\w{16}' succeeded", done.stdout)


def test_the_command_for_gpus_goes_where_gpus_are(server: Server, project: Path) -> None:
    done = server.shell(SUBMIT_GPU, cwd=project)
    assert done.returncode == 0, done.stdout
    assert "ENTRYPOINT CUDA_VISIBLE_DEVICES: " in done.stdout
    found = re.search(r"Job '(raysubmit_\w{16})' succeeded", done.stdout)
    assert found
    assert server.cluster_of(found[1]) == "second"


def test_the_program_of_the_document(server: Server, project: Path) -> None:
    program = SDK.replace(DOCUMENTED, server.address).replace(
        "timeout_seconds=5", f"timeout_seconds={PATIENCE_S}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=project,
        env=server.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "status: SUCCEEDED" in done.stdout
    assert "This cluster consists of" in done.stdout


def test_work_lands_on_both_clusters(server: Server, project: Path) -> None:
    """Each has two CPUs, so that the third job finds no room where the first two run."""
    ids = [f"both-{number}" for number in range(3)]
    ray_job = f"RAY_ADDRESS={server.address} ray job"
    for job in ids:
        done = server.shell(f"{ray_job} submit --no-wait --submission-id {job} -- sleep 600", cwd=project)
        assert done.returncode == 0, done.stdout
    try:
        until(lambda: {server.cluster_of(job) for job in ids} == {"first", "second"})
    finally:
        for job in ids:
            assert "was stopped" in server.shell(f"{ray_job} stop {job}", cwd=project).stdout


def test_excludes_stay_at_home_and_a_failure_is_the_exit_code(server: Server, project: Path) -> None:
    env = json.dumps({"excludes": ["notes.bin"], "env_vars": {"TF_WARNINGS": "none"}})
    done = server.shell(
        f"RAY_ADDRESS={server.address} ray job submit --working-dir ./ --runtime-env-json '{env}' "
        """-- sh -c 'ls; echo $TF_WARNINGS; exit 4'""",
        cwd=project,
    )
    assert done.returncode == 1, done.stdout
    assert "script.py\n" in done.stdout
    assert "\nnone\n" in done.stdout
    assert "\nnotes.bin\n" not in done.stdout
    assert "exit code 4" in done.stdout


def test_a_log_is_followed_through_the_death_of_a_head(
    server: Server, heads: Sandbox, project: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "second-run"
    program = f"if [ -e {marker} ]; then echo all is well; else touch {marker}; echo begun; sleep 600; fi"
    (project / "long.sh").write_text(program)
    where = json.dumps({"raymc.cluster": "first"})
    begun = server.shell(
        f"RAY_ADDRESS={server.address} ray job submit --no-wait --submission-id long "
        f"--metadata-json '{where}' --working-dir ./ -- sh long.sh",
        cwd=project,
    )
    assert begun.returncode == 0, begun.stdout
    follower = subprocess.Popen(
        [BIN / "ray", "job", "logs", "--follow", "long"],
        env={**server.environ, "RAY_ADDRESS": server.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert follower.stdout is not None
        seen = ""
        while "\nbegun\n" not in seen:
            line = follower.stdout.readline()
            assert line, seen
            seen += line
        assert server.cluster_of("long") == "first"
        heads.kill("first")
        rest, _ = follower.communicate(timeout=PATIENCE_S)
    finally:
        if follower.poll() is None:
            follower.kill()
        heads.start("first")
    assert "attempt 1 is over; attempt 2 follows" in rest
    assert "all is well" in rest
    assert "Job 'long' succeeded" in rest
    assert server.cluster_of("long") == "second"
