"""The user's guide to runtime environments: its commands and its program, word for word, in the clone's root.

The guide names a cluster, files and versions that are not here: the fixture `replaced` shows what is changed.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.support.pages import ROOT

from ray_multicluster_scheduler.local import Head

COMMAND_LINE = """\
python -m src.bench.cli pipeline \\
    --engine ray \\
    --ray-address "192.168.1.100:6379" \\
    --ray-runtime-env-json '{"pip": ["pandas==1.5.3", "scikit-learn==1.2.0"]}'
"""
PROGRAM = """\
from src.engines.ray.runtime import init_ray
import json

runtime_env = {
    "pip": ["pandas==1.5.3", "scikit-learn==1.2.0"],
    "env_vars": {"MY_VAR": "value"}
}

init_ray(
    address="192.168.1.100:6379",
    runtime_env_json=json.dumps(runtime_env)
)
"""
ONE_MACHINE = """\
# 单机模式（不需要 runtime_env）
python -m src.bench.cli pipeline \\
    --engine ray \\
    --operators StandardScaler \\
    --input data/sample.csv
"""
SEVERAL_MACHINES = """\
# 多机模式（需要 runtime_env）
python -m src.bench.cli pipeline \\
    --engine ray \\
    --ray-address "192.168.1.100:6379" \\
    --ray-runtime-env-json '{"pip": ["pandas==1.5.3", "scikit-learn==1.2.0"]}' \\
    --operators StandardScaler \\
    --input hdfs://namenode:9000/data/sample.csv
"""
FILE = """\
{
  "pip": [
    "pandas==1.5.3",
    "scikit-learn==1.2.0",
    "numpy>=1.20.0"
  ],
  "env_vars": {
    "PYTHONPATH": "/shared/code"
  }
}
"""
WITH_FILE = """\
python -m src.bench.cli pipeline \\
    --engine ray \\
    --ray-address "192.168.1.100:6379" \\
    --ray-runtime-env-json "$(cat ray_runtime_env.json)" \\
    --operators StandardScaler \\
    --input hdfs://namenode:9000/data/sample.csv
"""
#: What a task sees of the program's environment: the guide's own program ends when it has connected.
LOOK = """
import os, ray, pandas, sklearn

@ray.remote
def look():
    return os.environ["MY_VAR"], pandas.__version__, sklearn.__version__

print("SEEN", *ray.get(look.remote()))
"""


def run(*words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run something as somebody does who stands in the clone, with its Python as `python`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        words,
        cwd=ROOT,
        # Ray then stays on loopback, as the sandbox does.
        env={**os.environ, "PATH": path, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def replaced(real_head: Head, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Put what is here in the place of what is not, and show what that is."""
    folder = tmp_path_factory.mktemp("guide")
    sample = folder / "sample.csv"
    sample.write_text("age,city\n18,Oslo\n44,Rome\n70,Oslo\n")
    table = {
        "192.168.1.100:6379": real_head.gcs_address,
        "hdfs://namenode:9000/data/sample.csv": str(sample),
        "data/sample.csv": str(sample),
        "ray_runtime_env.json": str(folder / "ray_runtime_env.json"),
        # Built for numpy 1, and without a wheel for Python 3.12 and newer.
        "pandas==1.5.3": f"pandas=={version('pandas')}",
        "scikit-learn==1.2.0": f"scikit-learn=={version('scikit-learn')}",
    }
    for old, new in table.items():
        print(f"{old:40} -> {new}")
    pattern = re.compile("|".join(map(re.escape, table)))

    def replace(text: str) -> str:
        return pattern.sub(lambda found: table[found[0]], text)

    (folder / "ray_runtime_env.json").write_text(replace(FILE))
    return replace


def test_the_first_command_says_what_it_lacks() -> None:
    done = run("bash", "-c", COMMAND_LINE)
    assert done.returncode == 2
    assert "--input is missing" in done.stderr
    assert "--operators too" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_program_connects_and_its_tasks_have_its_environment(replaced: Callable[[str], str]) -> None:
    done = run(sys.executable, "-c", replaced(PROGRAM) + LOOK)
    assert f"SEEN value {version('pandas')} {version('scikit-learn')}\n" in done.stdout, done.stderr


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "command", [ONE_MACHINE, SEVERAL_MACHINES, WITH_FILE], ids=["one machine", "several machines", "file"]
)
def test_each_command_scales_the_numbers(command: str, replaced: Callable[[str], str]) -> None:
    done = run("bash", "-c", replaced(command))
    assert done.returncode == 0, done.stderr
    assert "StandardScaler" in done.stdout
    assert "-1.22" in done.stdout  # of 18, 44 and 70 the first


COMMAND = ("-m", "src.bench.cli", "--version")
IMPORT = ("-c", "from src.engines.ray.runtime import init_ray; print('imported')")


@pytest.mark.parametrize("words", [COMMAND, IMPORT], ids=["command", "import"])
def test_where_the_package_is_not_installed_it_says_what_to_do(words: tuple[str, ...]) -> None:
    done = run(sys.executable, "-S", *words)  # -S: without site-packages
    assert done.returncode == 1
    assert "not installed in this Python: run `pip install -e '.[pipeline]'` in the clone" in done.stderr
    assert "Traceback" not in done.stderr or words is IMPORT


@pytest.mark.parametrize("words", [COMMAND, IMPORT], ids=["command", "import"])
def test_an_older_package_of_the_name_on_the_path_is_named(words: tuple[str, ...], tmp_path: Path) -> None:
    older = tmp_path / "ray_multicluster_scheduler" / "__init__.py"
    older.parent.mkdir()
    older.touch()
    done = run(sys.executable, *words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert f"{older} is another package named ray_multicluster_scheduler" in done.stderr
    assert "take its folder out of PYTHONPATH" in done.stderr


@pytest.mark.parametrize("words", [COMMAND, IMPORT], ids=["command", "import"])
def test_another_package_named_src_does_not_get_in_the_way(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").touch()
    done = run(sys.executable, *words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
