"""`raymc doctor --run` on two real heads with conda by name, and with the older package on PYTHONPATH."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.conda_stand_in import StandInConda, write_old_checkout
from tests.support.raymc import environment, raymc

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.local import HeadSpec, Sandbox
from ray_multicluster_scheduler.ray_api.http_connection import open_connection

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

CONDAS = {"centos": "ts", "mac": "k8s"}


def write_config(folder: Path, sandbox: Sandbox, conda: StandInConda) -> Path:
    """Give each head its conda environment, its home and a search path."""
    document = yaml.safe_load(sandbox.config_path.read_text())
    for name, cluster in document["clusters"].items():
        conda.environment(CONDAS[name])
        home = folder / name
        write_old_checkout(home / "ray_multicluster_scheduler")
        search_path = f"{home}\n{home}/gone\n{home}/ray_multicluster_scheduler\n${{PYTHONPATH}}"
        env_vars = {"home_dir": f"{home}/", "PYTHONPATH": search_path}
        cluster["runtime_env"] = {"conda": CONDAS[name], "env_vars": env_vars}
    path = folder / "clusters.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


async def jobs_there(config: Path, environ: dict[str, str]) -> int:
    """Count what the heads remember of any job."""
    count = 0
    for spec in EmbeddedScheduler.open(config, environ=environ).config.clusters:
        async with open_connection(spec, environ) as connection:
            count += (await RayJobsExecutor(connection).inventory()).remembered
    return count


async def doctor_run(config: Path, environ: dict[str, str], *, code: int) -> dict[str, dict[str, Any]]:
    """Return the checks by cluster and name."""
    options = ("--json", "--timeout", "300", "--config", config)
    done = await raymc("doctor", "--run", *options, environ=environ)
    assert (done.code, done.err) == (code, ""), done.out
    clusters = json.loads(done.out)["clusters"]
    return {each["name"]: {check["name"]: check for check in each["checks"]} for each in clusters}


async def test_a_short_job_tells_the_environment_that_jobs_really_get(tmp_path: Path) -> None:
    conda = StandInConda(tmp_path / "conda")
    heads = [HeadSpec(name=name, cpus=2, env=conda.variables()) for name in CONDAS]
    environ = environment(RAY_MULTICLUSTER_HOME=str(tmp_path / "state"))
    with Sandbox(tmp_path / "heads", heads) as sandbox:
        config = write_config(tmp_path, sandbox, conda)
        found = await doctor_run(config, environ, code=0)
        assert await jobs_there(config, environ) == 0
        config.write_text(config.read_text().replace("conda: k8s", "conda: nobody-made-this"))
        typo = (await doctor_run(config, environ, code=1))["mac"]["run"]
    for name, conda_name in CONDAS.items():
        checks, home = found[name], tmp_path / name
        assert [check for check in checks.values() if check["verdict"] == "problem"] == []
        assert checks["run: conda"]["says"] == f"{conda_name}, sys.prefix is {conda.root}/envs/{conda_name}"
        assert checks["run: Python"]["says"].startswith(f"{platform.python_version()}, {conda.root}/envs/")
        assert checks["run: Ray"]["says"] == version("ray")
        assert checks["run: home_dir"]["says"] == f"{home}/"
        missing = checks["run: PYTHONPATH"]
        assert (missing["verdict"], missing["says"].endswith(f": {home}/gone")) == ("note", True)
        package = checks["run: this package"]
        assert package["says"].startswith(f"ray_multicluster_scheduler {__version__} from ")
        assert package["says"].endswith("which the job carried")
        for of_node in ("run: clock", "run: disk"):
            assert checks[of_node]["verdict"] == "ok", checks[of_node]
    assert (typo["verdict"], "conda environment 'nobody-made-this'" in typo["says"]) == ("problem", True)
    assert len(typo["says"]) < 800
