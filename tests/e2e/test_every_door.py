"""Each door meets real Ray once where CI sees it; the slow modules beside this one hold the rest.

Tasks and actors across clusters are in `test_tasks.py`, a job whose head is killed in `test_nobody_waits.py`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from tests.e2e.client_world import RAYMC, ClientWorld, Server, config_of
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.local import Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def world(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientWorld]:
    folder = tmp_path_factory.mktemp("doors")
    server = Server(folder / "server", config_of(sandbox, folder), {})
    try:
        world = ClientWorld(sandbox=sandbox, server=server, folder=folder)
        world.until_healthy()
        yield world
    finally:
        server.stop()


def run(*words: str | Path, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        words,
        env={**os.environ, **environ},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_ray_job_submit_goes_through_the_server(world: ClientWorld, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os; print('home', os.environ['home_dir'])\n")
    command = ["ray", "job", "submit", "--working-dir", ".", "--", "python", "script.py"]
    shown = run(*command, cwd=tmp_path, RAY_ADDRESS=world.server.address, PATH=world.server.environ["PATH"])
    (job,) = world.me.ask("jobs")["jobs"]
    assert f"Job '{job['submission_id']}' succeeded" in shown
    assert f"home /home/{job['cluster']}/" in shown


def test_a_program_connects_by_ray_client(world: ClientWorld, tmp_path: Path) -> None:
    (tmp_path / "only_at_home.py").write_text("WORD = 'from home'\n")
    init = {"runtime_env": {"working_dir": str(tmp_path), "env_vars": {"MINE": "of the client"}}}
    with world.me.program("client_work.py", init=init, cluster="mac") as program:
        seen = program.answer()
    assert seen["look"]["gcs"] in {world.gcs("mac"), world.gcs("centos")}
    assert seen["look"]["module"] == "from home"
    assert seen["actor"] == [6, 8]


def test_a_pipeline_runs_as_a_job(world: ClientWorld, tmp_path: Path) -> None:
    pd.DataFrame({"age": range(20), "city": ["Paris", "Oslo"] * 10}).to_csv(tmp_path / "in.csv", index=False)
    words = [
        "--cluster",
        "auto",
        "--operators",
        "MinMaxScaler",
        "--input",
        "in.csv",
        "--output",
        "out.parquet",
    ]
    config, home = str(world.server.config), str(tmp_path / "home")
    shown = run(
        *RAYMC,
        *["pipeline", "--config", config],
        *words,
        cwd=tmp_path,
        RAY_MULTICLUSTER_HOME=home,
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # Ray then stays on loopback, as the sandbox does
    )
    assert "MinMaxScaler" in shown
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 20
