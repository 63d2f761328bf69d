"""The programs of the users' own documents, on two real clusters."""

import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from tests.support.conda_stand_in import StandInConda
from tests.support.processes import specific_servers
from tests.support.waiting import until

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.local import HeadSpec, Sandbox
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.model.result import RESULT_VAR
from ray_multicluster_scheduler.packages.to_cluster import without_own_package

pytestmark = pytest.mark.ray

PROJECT = "project/pycharm/Fund/Index_Markup_Forecasting"
BUNCH = f"{PROJECT}/bunch_and_reverse_model/predict_cluster.py"
MARKUP = f"{PROJECT}/index_ts_forecasting_model/cat/predict_cluster.py"

SCRIPT = """
import os, sys
print("home_dir is", os.environ["home_dir"])
print("script is", os.path.abspath(sys.argv[0]))
print("cluster is", os.environ["RAY_MULTICLUSTER_CLUSTER"])
sys.path.insert(0, "")
import fund_tools
print("tools are", fund_tools.WHERE)
print("conda is", os.path.basename(sys.prefix))
"""
CONDAS = {"centos": "ts", "mac": "k8s"}


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two clusters that are large enough for what the documents ask for; GPUs and memory are logical."""
    conda = StandInConda(tmp_path_factory.mktemp("conda"))
    for name in CONDAS.values():
        conda.environment(name)
    env = conda.variables()
    specs = [
        HeadSpec(name="first", cpus=16, memory=64 * GIB, env=env),
        HeadSpec(name="second", cpus=16, gpus=2, memory=64 * GIB, env=env),
    ]
    with Sandbox(tmp_path_factory.mktemp("seeds"), specs) as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def no_helper_processes(heads: Sandbox) -> Iterator[None]:
    """Not one Ray Client helper process appears while a test runs; looked at all the time."""
    addresses = [head.gcs_address for head in heads.heads.values()]
    found: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            found.extend(specific_servers(*addresses))

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield
    over.set()
    watcher.join()
    assert not found


def write_config(folder: Path, heads: Sandbox, clusters: dict[str, dict[str, Any]], **settings: Any) -> Path:
    """Write a clusters.yaml that gives the two heads these names and further entries."""
    addresses = [
        {"head_address": head.client_address, "dashboard": head.dashboard} for head in heads.heads.values()
    ]
    entries = {
        name: {**address, **entry} for (name, entry), address in zip(clusters.items(), addresses, strict=True)
    }
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump({"clusters": entries, "scheduler": settings}))
    return path


class Zorro:
    """The user of seeds/000: the same project under two homes, each with its own tools."""

    def __init__(self, folder: Path, heads: Sandbox) -> None:
        self.heads = heads
        self.homes = {"centos": folder / "home/zorro", "mac": folder / "Users/zorro"}
        for name, home in self.homes.items():
            for script in (BUNCH, MARKUP):
                (home / script).parent.mkdir(parents=True)
                (home / script).write_text(SCRIPT)
            # Long enough that the second job finds this cluster taken.
            (home / BUNCH).write_text(SCRIPT + "import time; time.sleep(6)\n")
            tools = home / "project/pycharm/tools"
            tools.mkdir(parents=True)
            (tools / "fund_tools.py").write_text(f"WHERE = {name!r}\n")
        self.config = write_config(
            folder, heads, {name: {"runtime_env": self.env(name)} for name in self.homes}
        )
        self.environ = {**os.environ, "RAY_MULTICLUSTER_HOME": str(folder / "state")}

    def env(self, name: str) -> dict[str, Any]:
        """The environment of one cluster as the user wrote it."""
        home = self.homes[name]
        path = f"{home}/project/pycharm/Fund:\n{home}/project/pycharm/tools:\n${{PYTHONPATH}}\n"
        return {"conda": CONDAS[name], "env_vars": {"home_dir": f"{home}/", "PYTHONPATH": path}}

    def run(self, program: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the user to its end."""
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )


@pytest.fixture
def zorro(tmp_path: Path, heads: Sandbox) -> Zorro:
    return Zorro(tmp_path, heads)


MAIN = f"""
import os, time
from pathlib import Path
from ray_multicluster_scheduler.app.client_api.submit_job import get_job_info, submit_job, wait_for_all_jobs
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler_environment

home_dir = os.environ["SUBMITTED_FROM"] + "/"
env_path = Path(os.environ["ENV_PATH"])

job_config_list = {{
    'indx_bunch_daily_predict': Path(home_dir) / '{BUNCH}',
    'indx_markup_daily_predict': Path(home_dir) / '{MARKUP}',
    }}

def main():
    config_file_path = env_path / 'cluster.yaml'
    initialize_scheduler_environment(config_file_path=config_file_path)

    job_ids = []
    # Submit a job using the real cluster
    for job_name, entrypoint in job_config_list.items():
        job_id = submit_job(
            entrypoint=f'python {{entrypoint}}',
            submission_id=str(int(time.time() * 1000)),
            metadata={{'job_name': job_name}},
            resource_requirements={{'CPU': 16}},
            # preferred_cluster=PREFERRED_CLUSTER,
        )
        print(f'Job submitted successfully with ID: {{job_id}}')
        # Wait a bit for the job to start
        time.sleep(3)
        job_ids.append(job_id)

    wait_for_all_jobs(submission_ids=job_ids, check_interval=10)
    return job_ids

import json
print("INFO", json.dumps([get_job_info(job_id) for job_id in main()]))
"""


def infos(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("INFO "))
    return json.loads(line.removeprefix("INFO "))


def seen_by_ray(heads: Sandbox, head: str, submission_id: str) -> dict[str, Any]:
    """What Ray itself says of a job."""
    with urlopen(f"{heads.heads[head].dashboard}/api/jobs/{submission_id}", timeout=30) as answer:
        return json.load(answer)


def check_right_environment(zorro: Zorro, info: dict[str, Any], script: str) -> None:
    """The job saw, and Ray holds, exactly the environment of the cluster it ran on."""
    name = info["cluster"]
    home = zorro.homes[name]
    log = info["logs"]
    assert f"home_dir is {home}/\n" in log
    assert f"script is {home}/{script}\n" in log
    assert f"cluster is {name}\n" in log
    assert f"tools are {name}\n" in log
    assert f"conda is {CONDAS[name]}\n" in log
    remote = seen_by_ray(zorro.heads, {"centos": "first", "mac": "second"}[name], info["submission_id"])
    assert remote["entrypoint"].replace("//", "/") == f"python {home}/{script}"
    sent = without_own_package(remote["runtime_env"])
    assert sent.pop("py_modules") == []
    assert sent["env_vars"].pop(RESULT_VAR)
    assert sent == {
        "conda": CONDAS[name],
        "env_vars": {
            "home_dir": f"{home}/",
            "PYTHONPATH": f"{home}/project/pycharm/Fund:{home}/project/pycharm/tools:${{PYTHONPATH}}",
            "RAY_MULTICLUSTER_CLUSTER": name,
            "RAY_MULTICLUSTER_CURRENT_CLUSTER": name,
            "RAY_MULTICLUSTER_SUBMISSION_ID": info["submission_id"],
            "RAY_MULTICLUSTER_ATTEMPT": "1",
        },
    }


@pytest.mark.parametrize("submitted_from", ["centos", "mac"])
def test_the_two_jobs_run_on_both_clusters_each_with_its_own_environment(
    zorro: Zorro, submitted_from: str
) -> None:
    done = zorro.run(MAIN, SUBMITTED_FROM=str(zorro.homes[submitted_from]), ENV_PATH=str(zorro.config.parent))
    bunch, markup = infos(done)
    assert {bunch["cluster"], markup["cluster"]} == {"centos", "mac"}
    check_right_environment(zorro, bunch, BUNCH)
    check_right_environment(zorro, markup, MARKUP)


ROUNDS = f"""
import json, os
from ray_multicluster_scheduler import (
    get_job_info, initialize_scheduler_environment, submit_job, wait_for_all_jobs)

initialize_scheduler_environment(os.environ["CONFIG"])
ids = [
    submit_job(
        entrypoint=f'python {{os.environ["SUBMITTED_FROM"]}}//{MARKUP}',
        preferred_cluster=("centos", "mac")[round_ % 2],
    )
    for round_ in range(20)
]
wait_for_all_jobs(ids)
print("INFO", json.dumps([get_job_info(job_id) for job_id in ids]))
"""


def test_twenty_rounds_with_alternating_placement_mix_nothing_up(zorro: Zorro) -> None:
    done = zorro.run(ROUNDS, SUBMITTED_FROM=str(zorro.homes["mac"]), CONFIG=str(zorro.config))
    told = infos(done)
    # A preferred cluster that is busy with starts is not waited for: some may go to the other one.
    placed = [info["cluster"] for info in told]
    assert min(placed.count("centos"), placed.count("mac")) >= 5
    assert placed[:2] == ["centos", "mac"]
    for info in told:
        check_right_environment(zorro, info, MARKUP)


INTERRUPTED = """
import os, sys
from ray_multicluster_scheduler import (
    graceful_shutdown_on_keyboard_interrupt, initialize_scheduler_environment, submit_job, wait_for_all_jobs)

@graceful_shutdown_on_keyboard_interrupt
def my_workflow():
    ids = [submit_job("sleep 600", resource_requirements={"CPU": 12}) for _ in range(4)]
    print("IDS", *ids, flush=True)
    wait_for_all_jobs(ids)

initialize_scheduler_environment(os.environ["CONFIG"])
my_workflow()
"""


def test_ctrl_c_in_a_terminal_stops_everything_on_all_clusters(zorro: Zorro) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env={**zorro.environ, "CONFIG": str(zorro.config)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - only a system call
    )
    os.close(terminal)
    shown = _read_until(controller, "IDS ")
    ids = shown.split("IDS ")[1].split("\n")[0].split()
    _wait_for_status(zorro, ids, "RUNNING", at_least=2)
    asked_at = time.monotonic()
    os.write(controller, b"\x03")
    rest = _read_until(controller, None)
    assert process.wait(timeout=60) != 0
    took_s = time.monotonic() - asked_at
    print(f"stopped everything in {took_s:.1f} s")
    assert "KeyboardInterrupt" in rest
    assert "still being stopped" not in rest
    states = _statuses(zorro, ids)
    assert set(states.values()) == {"STOPPED"}, states


def _read_until(controller: int, words: str | None) -> str:
    """Read a terminal until some words were shown, or until its program has ended."""
    seen = ""
    while words is None or "\n" not in seen.partition(words)[2]:
        try:
            piece = os.read(controller, 65536).decode(errors="replace")
        except OSError:
            break
        if not piece:
            break
        seen += piece
    return seen.replace("\r", "")


def _statuses(zorro: Zorro, ids: list[str]) -> dict[str, str]:
    """Read the store as another process would; starts no scheduler."""
    scheduler = EmbeddedScheduler.open(zorro.config, environ=zorro.environ)
    try:
        return {each: scheduler.service.find_each([each])[0].status for each in ids}
    finally:
        scheduler.stop()


def _why(zorro: Zorro, ids: list[str]) -> str:
    scheduler = EmbeddedScheduler.open(zorro.config, environ=zorro.environ)
    try:
        return "\n".join(str(scheduler.service.explain(each)) for each in ids)
    finally:
        scheduler.stop()


def _wait_for_status(zorro: Zorro, ids: list[str], status: str, *, at_least: int) -> None:
    until(
        lambda: list(_statuses(zorro, ids).values()).count(status) >= at_least,
        within_s=120,
        told=lambda: _why(zorro, ids),
    )


DOCUMENTED = """
import os
from ray_multicluster_scheduler.app.client_api.submit_job import submit_job, get_job_status, wait_for_all_jobs

# 初始化调度器环境（需要集群配置文件）
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler_environment
task_lifecycle_manager = initialize_scheduler_environment(config_file_path="cluster.yaml")

# 提交作业
entrypoint = "python @/script.py --arg1 value1 --arg2 value2"
submission_id = submit_job(
    entrypoint=entrypoint,
    job_id="my_job_001",
    preferred_cluster="gpu_cluster",
    resource_requirements={"CPU": 4, "GPU": 1, "memory": 16.0}
)

print(f"作业提交成功，Submission ID: {submission_id}")

# 等待作业完成
wait_for_all_jobs([submission_id], check_interval=10)

# 查询作业状态
status = get_job_status(submission_id, "gpu_cluster")
print(f"作业状态: {status}")
assert status == "SUCCEEDED"

from ray_multicluster_scheduler.app.client_api.submit_job import graceful_shutdown_on_keyboard_interrupt

@graceful_shutdown_on_keyboard_interrupt
def my_workflow():
    # 提交多个作业
    job1 = submit_job("python @/job1.py", job_id="job1")
    job2 = submit_job("python @/job2.py", job_id="job2")

    # 等待作业完成
    wait_for_all_jobs([job1, job2])
    print("所有作业完成")

my_workflow()

# 批量提交多个作业
jobs = []
for i in range(5):
    entrypoint = f"python @/train.py --job_id job_{i}"
    submission_id = submit_job(
        entrypoint=entrypoint,
        job_id=f"batch_job_{i}",
        resource_requirements={"CPU": 2, "memory": 8.0},
        tags=["batch_training", f"iteration_{i}"]
    )
    jobs.append(submission_id)
    print(f"提交作业 {i}: {submission_id}")

# 等待所有作业完成
try:
    wait_for_all_jobs(jobs, check_interval=10, timeout=3600)
    print("所有批量作业完成")
except RuntimeError as e:
    print(f"部分作业失败: {e}")

# 为特定作业定制运行时环境
custom_env = {
    "env_vars": {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "PYTHONPATH": "@/code:$PYTHONPATH"
    },
    "working_dir": "@/project",
    "excludes": ["*.log", "tmp/*"]
}

submission_id = submit_job(
    entrypoint="python @/project/main.py",
    runtime_env=custom_env,
    job_id="torch_training",
    preferred_cluster="gpu_cluster",
    resource_requirements={"CPU": 16, "GPU": 2, "memory": 64.0}
)
wait_for_all_jobs([submission_id])

# 实现作业间的依赖关系
preprocess_id = submit_job(
    entrypoint="python @/preprocess.py --input data.csv",
    job_id="preprocess",
    tags=["preprocessing"]
)

# 等待预处理完成
wait_for_all_jobs([preprocess_id])

# 提交训练作业
train_id = submit_job(
    entrypoint="python @/train.py --model bert",
    job_id="train",
    metadata={"depends_on": preprocess_id},
    tags=["training"]
)

# 等待训练完成
wait_for_all_jobs([train_id])

try:
    submit_job("python script.py")  # ValueError
    raise SystemExit("a relative path was accepted")
except ValueError as e:
    print(f"ValueError: {e}")

# 指定不存在的集群
try:
    submission_id = submit_job("python @/script.py", preferred_cluster="non_existent_cluster")
    wait_for_all_jobs([submission_id])
    print("回退成功")
except Exception as e:
    print(f"集群不可用: {e}")

# 请求超出集群可用资源的作业
try:
    submit_job("python @/script.py", resource_requirements={"CPU": 1000})
    raise SystemExit("1000 CPUs were accepted")
except Exception as e:
    print(f"资源不足: {e}")

from ray_multicluster_scheduler.app.client_api.submit_job import get_job_info, stop_job
cluster_name = "gpu_cluster"
job_info = get_job_info(submission_id, cluster_name)
if job_info and 'logs' in job_info:
    print(f"作业日志:\\n{job_info['logs']}")

# 在提交前查看集群状态
from ray_multicluster_scheduler.app.client_api.unified_scheduler import get_unified_scheduler
scheduler = get_unified_scheduler()
clusters = scheduler.list_clusters()
print(f"可用集群: {clusters}")

failing = submit_job("python -c 'raise SystemExit(3)'")
try:
    wait_for_all_jobs([failing])
    raise SystemExit("a failed job was not noticed")
except RuntimeError as e:
    print(f"RuntimeError: {e}")

endless = submit_job("sleep 600")
try:
    wait_for_all_jobs([endless], timeout=1)
    raise SystemExit("a time-out was not noticed")
except TimeoutError as e:
    print(f"TimeoutError: {e}")
assert stop_job(endless, cluster_name) is True
assert get_job_status("nobody", cluster_name) == "UNKNOWN"
task_lifecycle_manager.stop()
print("THE END")
"""


def test_the_documented_programs_run_as_written_error_cases_included(tmp_path: Path, heads: Sandbox) -> None:
    for name in ("script.py", "job1.py", "job2.py", "train.py", "preprocess.py"):
        (tmp_path / name).write_text("import sys; print('ran', sys.argv[1:])")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/shared_code.py").write_text("WHERE = 'code'")
    project = tmp_path / "project"
    (project / "tmp").mkdir(parents=True)
    (project / "data.txt").write_text("shipped")
    (project / "big.log").write_text("left out")
    (project / "tmp/scratch").write_text("left out")
    (project / "main.py").write_text(
        "import os, shared_code\n"
        "assert open('data.txt').read() == 'shipped', os.getcwd()\n"
        "assert not os.path.exists('big.log') and not os.path.exists('tmp/scratch')\n"
        "assert os.environ['CUDA_VISIBLE_DEVICES'] == '0,1'\n"
    )
    clusters = {
        "cpu_cluster": {
            "runtime_env": {"env_vars": [f"PYTHONPATH={tmp_path}/opt"]},
            "prefer": True,
            "weight": 1.0,
            "tags": ["cpu", "stable"],
        },
        "gpu_cluster": {"prefer": False, "weight": 0.8, "tags": ["gpu", "experimental"]},
    }
    write_config(tmp_path, heads, clusters)
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", DOCUMENTED.replace("@/", f"{tmp_path}/")],
        cwd=tmp_path,
        env={**os.environ, "RAY_MULTICLUSTER_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    assert shown.endswith("THE END\n")
    assert "所有批量作业完成" in shown
    assert "回退成功" in shown
    assert "non_existent_cluster" in done.stderr  # the warning
    assert "relative path" in shown
    assert "1000 CPU" in shown
    assert "the largest cluster" in shown
    assert "exit code 3" in shown
    assert "RUNNING" in shown or "PLACED" in shown or "SUBMITTED" in shown  # what the time-out says is open


def test_without_a_configuration_the_documented_error_is_raised(tmp_path: Path, heads: Sandbox) -> None:
    program = """
    from ray_multicluster_scheduler.app.client_api.submit_job import submit_job
    try:
        submit_job("python /path/script.py")
    except RuntimeError as e:
        print("RuntimeError:", e)
    """
    environ = {**os.environ, "RAY_MULTICLUSTER_HOME": str(tmp_path / "state")}
    environ.pop("RAY_MULTICLUSTER_CONFIG", None)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no clusters.yaml found" in done.stdout
