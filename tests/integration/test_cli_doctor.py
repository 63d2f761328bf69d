"""`raymc doctor` finds what is wrong, says what to do, and tells by its exit code."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.builders import a_cluster
from tests.integration.raymc import environment, raymc, write_config

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
