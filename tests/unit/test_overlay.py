"""pip packages on top of a named conda environment: what is sent, and what the node does with it."""

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.environment.compose import (
    HOOK_VAR,
    OVERLAY_HOOK,
    OVERLAY_VAR,
    compose,
    for_ray_client,
    has_overlay,
    remove_overlay,
)
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import NODE_CODE, with_overlay_code

CONDA = {"conda": "ml-env", "env_vars": {"A": "1"}}


def composed(cluster: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    return compose(cluster, job, identity={}, overlay=True)


@pytest.mark.parametrize(
    ("cluster", "job"), [(CONDA, {"pip": ["humanize"]}), ({}, {**CONDA, "pip": ["humanize"]})]
)
def test_pip_over_a_named_environment_is_sent_as_a_hook_and_what_to_install(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    env = composed(cluster, job)
    assert env["conda"] == "ml-env"
    assert "pip" not in env
    assert env["worker_process_setup_hook"] == OVERLAY_HOOK
    assert env["env_vars"]["A"] == "1"
    assert json.loads(env["env_vars"][OVERLAY_VAR]) == {"packages": ["humanize"], "options": []}


def test_a_session_of_ray_client_gets_the_hook_as_the_variable_that_workers_read() -> None:
    env = composed(CONDA, {"pip": ["humanize"]})
    assert for_ray_client(env)["env_vars"] == {**env["env_vars"], HOOK_VAR: OVERLAY_HOOK}
    assert remove_overlay(for_ray_client(env)) == {**CONDA, "pip": ["humanize"]}
    assert for_ray_client(CONDA) == CONDA


def test_options_of_pip_reach_the_node() -> None:
    pip = {"packages": ["a"], "pip_check": False, "pip_install_options": ["--no-deps"]}
    env = composed(CONDA, {"pip": pip})
    assert json.loads(env["env_vars"][OVERLAY_VAR]) == {"packages": ["a"], "options": ["--no-deps"]}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"pip": ["a"], "worker_process_setup_hook": "mine.setup"}, "there is one already"),
        ({"uv": ["a"]}, "write the packages under pip"),
        ({"pip": {"packages": ["a"], "pip_version": "==24"}}, "pip_version: the pip of that environment"),
    ],
)
def test_what_cannot_be_laid_over_is_refused_with_the_reason(job: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRuntimeEnv, match=f"the conda environment 'ml-env': .*{words}"):
        composed(CONDA, job)


def test_the_code_goes_along_with_an_overlay_only(tmp_path: Path) -> None:
    packages = PackageStore(tmp_path)
    plain = composed({}, {"pip": ["a"]})
    assert with_overlay_code(plain, packages) == plain
    env = with_overlay_code(composed(CONDA, {"pip": ["a"], "py_modules": ["gcs://mine.zip"]}), packages)
    assert has_overlay(env)
    mine, code = package_names(env)
    assert mine == "mine.zip"
    assert packages.path(code) is not None


# -- On the node -----------------------------------------------------------------------------------------


def a_package(folder: Path, version: str) -> Path:
    """A package that pip can install without any network: it needs no build either."""
    wheel = folder / f"tiny-{version}-py3-none-any.whl"
    meta = f"tiny-{version}.dist-info"
    files = {
        "tiny.py": f"VERSION = {version!r}\n",
        f"{meta}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{meta}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def run_python(folder: Path, code: str, *, wanted: str | None, base: Path | None = None) -> Any:
    """Run a program as Ray would: with the overlay's code, and then the base, on PYTHONPATH."""
    path = [str(NODE_CODE), *([str(base)] if base else [])]
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(path)}
    if wanted is not None:
        request = {"packages": [wanted], "options": ["--no-index", "--no-deps"]}
        environ[OVERLAY_VAR] = json.dumps(request)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def overlays(folder: Path) -> list[Path]:
    return [path for path in folder.glob("raymc-overlays-*/*") if path.is_dir()]


def test_a_program_sees_the_overlay_before_its_base_and_the_next_one_reuses_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "tiny.py").write_text("VERSION = 'base'\n")
    wheel = a_package(tmp_path, "2.0")
    show = "import tiny; print(tiny.VERSION)"
    assert run_python(tmp_path, show, wanted=None, base=base).stdout == "base\n"
    assert run_python(tmp_path, show, wanted=str(wheel), base=base).stdout == "2.0\n"
    wheel.unlink()  # so that installing again would fail
    again = run_python(tmp_path, show, wanted=str(wheel), base=base)
    assert (again.stdout, again.stderr) == ("2.0\n", "")
    assert len(overlays(tmp_path)) == 1


def test_a_program_does_not_run_without_what_it_asked_for(tmp_path: Path) -> None:
    done = run_python(tmp_path, "print('ran')", wanted=str(tmp_path / "none-1-py3-none-any.whl"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: pip could not install")
    assert overlays(tmp_path) == []


def test_the_sitecustomize_that_ours_hides_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    assert run_python(tmp_path, "print('program')", wanted=None, base=tmp_path).stdout == "theirs\nprogram\n"


def test_an_overlay_that_nobody_has_used_for_long_is_removed(tmp_path: Path) -> None:
    run_python(tmp_path, "", wanted=str(a_package(tmp_path, "1.0")))
    (old,) = overlays(tmp_path)
    long_ago = time.time() - 15 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    run_python(tmp_path, "", wanted=str(a_package(tmp_path, "2.0")))
    (left,) = overlays(tmp_path)
    assert left != old


def test_a_directory_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / f"raymc-overlays-{os.getuid()}").mkdir()
    (tmp_path / f"raymc-overlays-{os.getuid()}").chmod(0o777)
    done = run_python(tmp_path, "print('ran')", wanted="tiny")
    assert "is not ours alone" in done.stderr
    assert done.stdout == ""
