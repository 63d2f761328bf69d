"""Pipelines on real clusters: the commands of the user's guide, and both engines side by side."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray

from ray_multicluster_scheduler import init_ray
from ray_multicluster_scheduler.errors import ClusterUnreachable, InvalidRuntimeEnv
from ray_multicluster_scheduler.local import Head, Sandbox
from raymc_pipeline.operators import OPERATORS
from raymc_pipeline.pandas_engine import run_on_pandas
from raymc_pipeline.plan import Plan, make_plan
from raymc_pipeline.ray_engine import run_on_ray
from raymc_pipeline.report import RunReport

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 300
PARAMS: dict[str, dict[str, Any]] = {
    "PowerTransformer": {"power": 0.5},
    "FeatureHasher": {"num_features": 3},
    "UniformKBinsDiscretizer": {"bins": 4},
    "CustomKBinsDiscretizer": {"bins": [0, 30, 60, 90]},
    "LabelEncoder": {"columns": ["city"]},
    "HashingVectorizer": {"num_features": 4},
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, so that Ray has two blocks; words have gaps, which operators on text keep."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data") / "sample"
    folder.mkdir()
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 90, ROWS),
            "income": random.normal(50_000, 10_000, ROWS).round(2),
            "city": random.choice(["Paris", "Oslo", "Rome"], ROWS),
            "note": random.choice(["a b", "b c c", "a", "d a b"], ROWS),
        }
    )
    frame[: ROWS // 2].to_csv(folder / "1.csv", index=False)
    frame[ROWS // 2 :].to_csv(folder / "2.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def lead(real_head: Head) -> Iterator[Callable[[Plan], RunReport]]:
    """Run plans on a real cluster, each led by a task there, over one connection."""
    init_ray(client(real_head))
    task = ray.remote(run_on_ray).options(num_cpus=0)
    yield lambda plan: ray.get(task.remote(plan))
    ray.shutdown()


def client(head: Head) -> str:
    return f"ray://{head.client_address}"


def plain(column: pd.Series) -> list[Any]:
    """Values that compare: vectors as lists, numbers as floats, every kind of nothing as None."""
    values = [np.asarray(value).tolist() if hasattr(value, "__array__") else value for value in column]
    return [None if not isinstance(value, list) and pd.isna(value) else value for value in values]


@pytest.mark.parametrize("name", OPERATORS)
def test_both_engines_give_the_same_numbers(
    name: str, lead: Callable[[Plan], RunReport], sample: Path, tmp_path: Path
) -> None:
    operators = ["Tokenizer", name] if name == "MultiHotEncoder" else [name]
    results = []
    for engine, run in (("ray", lead), ("pandas", run_on_pandas)):
        target = tmp_path / f"{engine}.parquet"
        params = {operator: PARAMS[operator] for operator in operators if operator in PARAMS}
        run(make_plan(operators, str(sample), output=str(target), params=params))
        results.append(pd.read_parquet(target))
    on_ray, on_pandas = results
    assert list(on_ray.columns) == list(on_pandas.columns)
    for column in on_pandas:
        for one, other in zip(plain(on_ray[column]), plain(on_pandas[column]), strict=True):
            exact = isinstance(other, str) or (isinstance(other, list) and isinstance(other[0], str))
            assert one == (other if exact or other is None else pytest.approx(other, rel=1e-9, abs=1e-9))


def raymc(*words: str, home: Path, module: bool = False) -> subprocess.CompletedProcess[str]:
    front_door = ["raymc_pipeline"]
    entry = ["-m", *(front_door if module else ["ray_multicluster_scheduler.cli.main", "pipeline"])]
    environ = {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",
        "RAY_MULTICLUSTER_HOME": str(home),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray then stays on loopback, as the sandbox does
    }
    return subprocess.run(
        [sys.executable, *entry, *words],
        env=environ,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_single_machine_command_of_the_guide_runs(sample: Path, tmp_path: Path) -> None:
    words = ["--engine", "ray", "--operators", "StandardScaler", "--input", str(sample)]
    done = raymc(*words, home=tmp_path, module=True)
    assert done.returncode == 0, done.stderr
    assert "StandardScaler" in done.stdout


def test_a_package_that_only_the_environment_has_is_there_and_kept_for_the_next_run(
    real_head: Head, sample: Path, tmp_path: Path
) -> None:
    (tmp_path / "env.json").write_text(
        json.dumps({"pip": ["humanize==4.9.0"], "env_vars": {"OMP_NUM_THREADS": "4"}})
    )
    words = ["--engine", "ray", "--ray-address", real_head.gcs_address, "--operators", "StandardScaler"]
    words += ["--ray-runtime-env-json", "@env.json", "--input", str(sample), "--repeats", "2"]
    done = raymc(*words, "--report", "report.json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "report.json").read_text())["runs"]
    assert len(runs) == 2
    assert [step["rows"] for step in runs[1]["steps"]] == [ROWS, ROWS]


def test_packages_code_and_variables_are_what_the_task_sees(real_head: Head, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("WHERE = 'shipped'\n")
    (tmp_path / "mine.log").touch()
    env = {
        "pip": ["humanize==4.9.0"],
        "env_vars": {"MY_VAR": "value"},
        "working_dir": str(tmp_path),
        "excludes": ["*.log"],
    }
    init_ray(client(real_head), json.dumps(env))

    @ray.remote
    def look() -> tuple[str, str, str, list[str]]:
        import humanize
        import mine

        return (
            humanize.__version__,
            os.environ["MY_VAR"],
            mine.WHERE,
            sorted(path.name for path in Path().iterdir()),
        )

    try:
        version, variable, where, files = ray.get(look.remote())
    finally:
        ray.shutdown()
    assert (version, variable, where) == ("4.9.0", "value", "shipped")
    assert "mine.py" in files
    assert "mine.log" not in files


def test_from_outside_a_task_on_the_cluster_leads(real_head: Head, sample: Path, tmp_path: Path) -> None:
    words = ["--ray-address", client(real_head), "--operators", "MinMaxScaler"]
    done = raymc(*words, "--input", str(sample), home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "MinMaxScaler" in done.stdout


def test_a_pipeline_runs_as_a_job_on_the_best_cluster(sandbox: Sandbox, sample: Path, tmp_path: Path) -> None:
    words = ["--cluster", "auto", "--config", str(sandbox.config_path), "--operators", "OneHotEncoder"]
    done = raymc(*words, "--input", str(sample), "--output", str(tmp_path / "o.parquet"), home=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "OneHotEncoder" in done.stdout
    assert len(pd.read_parquet(tmp_path / "o.parquet")) == ROWS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ray-runtime-env-json", '{"pip": '], "not valid JSON: Expecting value, at line 1, column 9"),
        (["--ray-runtime-env-json", '{"pips": []}'], "unknown option 'pips'; did you mean 'pip'?"),
        (["--ray-address", "127.0.0.1:1"], "no server answers at 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_clear_message(words: list[str], said: str, sample: Path, tmp_path: Path) -> None:
    done = raymc("--operators", "StandardScaler", "--input", str(sample), *words, home=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("over_client", [False, True])
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"pip": ["no-such-package-at-all==1.0"]}, "No matching distribution found for no-such-package"),
        ({"conda": "no-such-environment"}, "conda"),
    ],
)
def test_an_environment_that_cannot_be_set_up_says_why(
    env: dict[str, Any], said: str, over_client: bool, real_head: Head, sample: Path, tmp_path: Path
) -> None:
    address = client(real_head) if over_client else real_head.gcs_address
    words = ["--ray-address", address, "--ray-runtime-env-json", json.dumps(env)]
    done = raymc("--operators", "StandardScaler", "--input", str(sample), *words, home=tmp_path)
    assert done.returncode == 2
    assert "the cluster cannot set this environment up" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_packages_that_do_not_fit_together_are_one_clear_message_and_its_advice_works(
    real_head: Head, sample: Path, tmp_path: Path
) -> None:
    def run(*packages: str) -> subprocess.CompletedProcess[str]:
        words = ["--engine", "ray", "--ray-address", real_head.gcs_address, "--operators", "StandardScaler"]
        environment = json.dumps({"pip": packages})
        return raymc(*words, "--ray-runtime-env-json", environment, "--input", str(sample), home=tmp_path)

    refused = run("pandas==1.5.3")
    assert refused.returncode == 2
    lines = refused.stderr.strip().splitlines()
    assert "pandas==1.5.3 was built for numpy 1" in lines[0]
    assert "numpy.dtype size changed" in lines[-1]
    assert lines[-1].endswith("for pandas==1.5.3 add numpy==1.26.4 and pyarrow==17.0.0")
    assert len(lines) < 10, refused.stderr
    advised = run("pandas==1.5.3", "numpy==1.26.4", "pyarrow==17.0.0")
    assert advised.returncode == 0, advised.stderr


def test_a_connection_goes_where_it_was_asked_to_go(sandbox: Sandbox) -> None:
    first, second = sandbox.heads.values()
    try:
        init_ray(client(first))
        assert ray.cluster_resources()["CPU"] == 4
        assert init_ray(client(first), namespace="mine").namespace == "mine"
        assert init_ray(client(second)).nodes == 1
        assert ray.cluster_resources()["CPU"] == 2
        with pytest.raises(InvalidRuntimeEnv, match="must be a mapping"):
            init_ray(client(first), "[]")
        init_ray()  # keeps what is there
        assert ray.cluster_resources()["CPU"] == 2
    finally:
        ray.shutdown()
    with pytest.raises(ClusterUnreachable):
        init_ray("ray://127.0.0.1:1")


@pytest.mark.parametrize("first", ["", "import ray"])
def test_a_head_on_loopback_is_joined_by_its_address(sandbox: Sandbox, first: str) -> None:
    one, other = (head.gcs_address for head in sandbox.heads.values())
    program = f"""
{first}
from ray_multicluster_scheduler import init_ray
print(init_ray({one!r}).gcs_address)
print(init_ray({other!r}).gcs_address)
import ray
print(ray.get(ray.remote(lambda: "done").remote()))
"""
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == [one, other, "done"], done.stderr
