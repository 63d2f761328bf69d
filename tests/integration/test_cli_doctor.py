"""`raymc doctor` finds what is wrong, says what to do, and tells by its exit code."""

import asyncio
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_cluster
from tests.support.raymc import environment, raymc, write_config

from ray_multicluster_scheduler.testing.fake_cluster import ENVIRONMENT_FAILURE
from ray_multicluster_scheduler.testing.fake_ray import FakeRay


async def test_a_good_cluster_passes_every_check(tmp_path: Path) -> None:
    async with FakeRay(name="a") as fake:
        done = await raymc("doctor", "--config", write_config(tmp_path, [fake.spec()]), environ=environment())
    assert (done.code, done.err) == (0, "")
    assert "✗" not in done.out
    for check in ("address", "dashboard", "Ray version", "nodes and jobs", "Ray Client", "environment"):
        assert f"✓  {check} " in done.out, check
    assert "No problem found." in done.out


async def test_a_directory_in_a_clusters_environment_is_fine_when_it_exists(tmp_path: Path) -> None:
    async with FakeRay(name="a") as fake:
        spec = fake.spec(runtime_env={"working_dir": ".", "py_modules": ["lib"], "excludes": ["*.log"]})
        config = write_config(tmp_path, [spec])
        missing = await raymc("doctor", "--config", config, environ=environment())
        (tmp_path / "lib").mkdir()
        done = await raymc("doctor", "--config", config, environ=environment())
    assert missing.code == 1
    assert "lib' does not exist on this machine" in " ".join(missing.out.split())
    assert (done.code, done.err) == (0, "")
    assert "(packed and sent with each job)" in " ".join(done.out.split())


async def test_problems_are_named_with_what_to_do_and_the_exit_code_is_1(tmp_path: Path) -> None:
    refused = a_cluster("refused", dashboard="http://127.0.0.1:9", head_address="127.0.0.1:9")
    nowhere = a_cluster("nowhere", head_address="123.456.789.0:10001", dashboard="http://123.456.789.0:8265")
    config = write_config(tmp_path, [refused, nowhere])
    done = await raymc("doctor", "--config", config, environ=environment())
    assert done.code == 1
    assert "✗  dashboard    connection refused at http://127.0.0.1:9" in done.out
    assert "--dashboard-host=0.0.0.0" in done.out
    assert "✗  Ray Client   127.0.0.1:9 refuses connections" in done.out
    assert "✗  address      '123.456.789.0' cannot be resolved" in done.out


async def test_one_bad_cluster_does_not_hide_a_good_one(tmp_path: Path) -> None:
    async with FakeRay(name="good") as good, FakeRay(name="stuck") as stuck:
        stuck.hang()
        config = write_config(tmp_path, [stuck.spec(), good.spec()], probe_timeout_s=5)
        done = await raymc("doctor", "--json", "--config", config, environ=environment())
        stuck.resume()
    assert done.code == 1
    verdicts = {
        cluster["name"]: {check["name"]: check["verdict"] for check in cluster["checks"]}
        for cluster in json.loads(done.out)["clusters"]
    }
    assert verdicts["stuck"]["dashboard"] == "problem"
    assert verdicts["stuck"]["nodes and jobs"] == "skipped"
    assert "problem" not in verdicts["good"].values()


@pytest.mark.parametrize(
    ("token", "code", "words"),
    [
        ("secret-1", 0, "the token in FAKE_RAY_A_TOKEN is accepted"),
        ("secret-2", 1, "it does not accept the token in the environment variable FAKE_RAY_A_TOKEN"),
        ("", 1, "FAKE_RAY_A_TOKEN is not set or empty"),
    ],
    ids=["right", "wrong", "missing"],
)
async def test_the_token_is_checked_and_never_shown(
    tmp_path: Path, token: str, code: int, words: str
) -> None:
    async with FakeRay(name="a", token="secret-1") as fake:
        config = write_config(tmp_path, [fake.spec()])
        with_token = environment(FAKE_RAY_A_TOKEN=token)
        done = await raymc("doctor", "--config", config, environ=with_token)
    assert (done.code, words in done.out) == (code, True)
    assert "secret" not in done.out + done.err


async def test_a_dashboard_that_outlived_its_head_does_not_pass(tmp_path: Path) -> None:
    async with FakeRay(name="a") as fake:
        fake.kill_raylet()
        done = await raymc("doctor", "--config", write_config(tmp_path, [fake.spec()]), environ=environment())
    assert done.code == 1
    assert "✓  dashboard " in done.out
    assert "is DEAD" in done.out


async def test_the_client_port_is_connected_to_and_nothing_is_sent(tmp_path: Path) -> None:
    received: list[bytes] = []
    closed = asyncio.Event()

    async def client_port(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()
        closed.set()

    server = await asyncio.start_server(client_port, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, FakeRay(name="a") as fake:
        config = write_config(tmp_path, [fake.spec(head_address=address)])
        done = await raymc("doctor", "--config", config, environ=environment())
        await closed.wait()
    assert f"✓  Ray Client        {address} is open" in done.out
    assert received == [b""]


async def test_it_is_told_that_jobs_wait_for_a_head_that_dies_and_how_to_mend_that(tmp_path: Path) -> None:
    async with FakeRay(name="closed") as closed, FakeRay(name="tunnel") as tunnel:
        specs = [closed.spec(head_address="127.0.0.1:9"), tunnel.spec()]  # a fake is no process of Ray
        done = await raymc("doctor", "--config", write_config(tmp_path, specs), environ=environment())
    words = " ".join(done.out.split())
    assert words.count("– failover if this head dies, its jobs wait for it: a tunnel of this machine") == 2
    assert "set `dashboard` and `head_address` to an address of the head itself" in words
    assert "jobs work without it" not in words


#: Entrypoints of a fake cluster run with this Python.
THIS_PYTHON = f"{Path(sys.executable).parent}:${{PATH}}"


def tried(name: str, **options: Any) -> FakeRay:
    """A fake cluster whose head has the versions of this environment."""
    return FakeRay(name=name, python_version=platform.python_version(), **options)


async def doctor_run(tmp_path: Path, *fakes: FakeRay, **options: Any) -> dict[str, dict[str, dict[str, str]]]:
    """Run `doctor --run` on these clusters; return its checks by cluster and name."""
    env_vars = {"PATH": THIS_PYTHON, **options.pop("env_vars", {})}
    config = write_config(tmp_path, [fake.spec(runtime_env={"env_vars": env_vars}) for fake in fakes])
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environ = environment(RAY_MULTICLUSTER_HOME=str(tmp_path / "state"))
    done = await raymc("doctor", "--run", "--json", "--config", config, *arguments, environ=environ)
    assert done.err == ""
    clusters = json.loads(done.out)["clusters"]
    return {each["name"]: {check["name"]: check for check in each["checks"]} for each in clusters}


async def test_a_short_job_on_each_cluster_tells_what_jobs_get_there(tmp_path: Path) -> None:
    env_vars = {"home_dir": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{tmp_path}/gone", "KEY_SECRET": "gone"}
    async with tried("a") as a, tried("b") as b:
        found = await doctor_run(tmp_path, a, b, env_vars=env_vars)
        for fake in (a, b):
            (run,) = fake.runs
            assert run.submission_id.startswith("raymc-probe-")
            assert fake.cluster.jobs == {}  # nothing is left there
    for checks in found.values():
        assert checks["run"]["verdict"] == "ok"
        assert checks["run: conda"]["says"] == f"none, sys.prefix is {sys.prefix}"
        assert checks["run: Python"]["verdict"] == "ok"
        assert checks["run: home_dir"]["says"] == str(tmp_path)
        missing = checks["run: PYTHONPATH"]
        assert (missing["verdict"], f"{tmp_path}/<redacted>" in missing["says"]) == ("note", True)
        # A fake cluster unpacks no `py_modules`, so the job imports what is installed.
        assert checks["run: this package"]["verdict"] == "problem"
        assert "not the one that the job carried" in checks["run: this package"]["says"]
        assert checks["run: clock"]["verdict"] == "ok"
        assert checks["run: disk"]["says"].endswith(f"GiB free in {tempfile.gettempdir()}")


async def test_a_cluster_that_is_down_gets_no_job_and_the_others_do(tmp_path: Path) -> None:
    async with tried("up") as up, tried("down") as down:
        await down.kill()
        found = await doctor_run(tmp_path, down, up)
    assert found["down"]["dashboard"]["verdict"] == "problem"
    assert found["down"]["run"]["says"].startswith("not run")
    assert found["up"]["run"]["verdict"] == "ok"


async def test_an_environment_that_cannot_be_set_up_is_told_in_the_words_of_ray(tmp_path: Path) -> None:
    async with tried("a") as fake:
        fake.cluster.start_failure = ENVIRONMENT_FAILURE
        fake.cluster.start_failure_words = (
            "Traceback (most recent call last):\n  File x\n"
            "ValueError: The given conda environment 'ts' from the runtime env {runtime_env} doesn't exist "
            "from the output of `conda info --json`."
        )
        checks = (await doctor_run(tmp_path, fake, env_vars={"DB_PASSWORD": "open-sesame"}))["a"]
        assert fake.cluster.jobs == {}
    assert checks["run"]["verdict"] == "problem"
    assert "conda environment 'ts' doesn't exist" in checks["run"]["says"]
    assert "sesame" not in str(checks)
    assert not any(name.startswith("run: ") for name in checks)


async def test_a_job_that_does_not_end_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "python").write_text("#!/bin/sh\nexec sleep 600\n")
    (folder / "python").chmod(0o755)
    async with tried("a") as fake:
        checks = (await doctor_run(tmp_path, fake, timeout=20, env_vars={"PATH": f"{folder}:${{PATH}}"}))["a"]
        (run,) = fake.runs
        assert run.end is not None
        assert fake.cluster.jobs == {}
    assert checks["run"]["verdict"] == "problem"
    assert "not ended, after 20 s" in checks["run"]["says"]


async def test_a_time_without_a_job_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, [a_cluster()])
    done = await raymc("doctor", "--timeout", "5", "--config", config, environ=environment())
    assert (done.code, done.out) == (2, "")
    assert "--run" in done.err
