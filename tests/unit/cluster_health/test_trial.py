"""What the short job of `raymc doctor --run` finds has its verdict, and every problem says what to do."""

import json
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import NOW, a_cluster, a_snapshot
from tests.unit.cluster_health.test_diagnosis import evidence

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Verdict
from ray_multicluster_scheduler.cluster_health.trial_program import MARK
from ray_multicluster_scheduler.inspection.doctor import (
    Found,
    Trial,
    can_run,
    diagnose_trial,
    entrypoint,
    failed,
    found_in,
    late,
)
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting
from ray_multicluster_scheduler.model.resources import GIB

CARRIED = "gcs://_ray_pkg_0123456789abcdef.zip"
UNPACKED = "/tmp/ray/session_1/runtime_resources/py_modules_files/_ray_pkg_0123456789abcdef"
FOUND = Found(
    host="node-1",
    conda="ts",
    prefix="/opt/conda/envs/ts",
    executable="/opt/conda/envs/ts/bin/python",
    python="3.12.3",
    ray="2.60.0",
    home_dir="/home/zorro/",
    home_dir_exists=True,
    search_path=5,
    not_there=(),
    temp_dir="/tmp",
    temp_free=10 * int(GIB),
    carried=CARRIED,
    package=f"{UNPACKED}/ray_multicluster_scheduler/__init__.py",
    package_version=__version__,
    clock=NOW + 2,
)


def checks(*, spec: dict[str, Any] | None = None, **found: Any) -> dict[str, Check]:
    """What is said of a job that found this on a cluster with the conda environment `ts`."""
    trial = Trial(found=replace(FOUND, **found), took_s=4.0, after=NOW, before=NOW + 4)
    target = a_cluster(**{"runtime_env": {"conda": "ts"}, **(spec or {})})
    return {check.name.removeprefix("run: "): check for check in diagnose_trial(evidence(spec=target), trial)}


def test_an_environment_as_it_should_be_has_no_problem() -> None:
    found = checks()
    assert {check.verdict for check in found.values()} == {Verdict.OK}
    assert found["run"].says == "a short job ended on node-1 4.0 s after its submission"
    assert found["conda"].says == "ts, sys.prefix is /opt/conda/envs/ts"
    assert found["this package"].says.endswith("which the job carried")
    assert [*found] == [
        "run", "conda", "Python", "Ray", "home_dir", "PYTHONPATH", "this package", "clock", "disk",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "conda", "prefix", "verdict"),
    [
        ("ts", "", "/opt/conda/envs/ts", Verdict.OK),
        ("base", "base", "/opt/conda", Verdict.OK),
        ("/srv/envs/x", "", "/srv/envs/x", Verdict.OK),
        ({"dependencies": []}, "", "/tmp/ray/conda/0123", Verdict.OK),
        (None, "", "/usr", Verdict.OK),
        ("ts", "", "/usr", Verdict.PROBLEM),
        ("ts", "base", "/opt/conda", Verdict.PROBLEM),
    ],
)
def test_the_program_must_run_with_the_python_of_its_conda_environment(
    wanted: Any, conda: str, prefix: str, verdict: Verdict
) -> None:
    found = checks(spec={"runtime_env": {"conda": wanted}}, conda=conda, prefix=prefix)["conda"]
    assert found.verdict is verdict
    assert verdict is Verdict.OK or "PATH" in found.advice


@pytest.mark.parametrize(
    ("python", "verdict"), [("3.12.3", Verdict.OK), ("3.12.9", Verdict.NOTE), ("3.10.3", Verdict.PROBLEM)]
)
def test_another_python_than_that_of_the_head_cannot_call_ray_init(python: str, verdict: Verdict) -> None:
    found = checks(python=python)["Python"]
    assert found.verdict is verdict
    assert verdict is Verdict.OK or "ray.init()" in found.advice


@pytest.mark.parametrize(
    ("ray", "verdict"), [("2.60.0", Verdict.OK), ("2.9.3", Verdict.PROBLEM), (None, Verdict.NOTE)]
)
def test_another_ray_than_that_of_the_head_is_a_problem(ray: str | None, verdict: Verdict) -> None:
    assert checks(ray=ray)["Ray"].verdict is verdict


def test_versions_that_the_head_does_not_tell_are_compared_with_nothing() -> None:
    trial = Trial(found=replace(FOUND, python="3.8.1", ray="2.9.0"), took_s=4.0, after=NOW, before=NOW + 4)
    silent = evidence(snapshot=a_snapshot(python_version=None, ray_version=None))
    verdicts = {check.name: check.verdict for check in diagnose_trial(silent, trial)}
    assert verdicts["run: Python"] is verdicts["run: Ray"] is Verdict.OK


def test_a_home_dir_that_does_not_exist_is_pointed_out_and_none_is_no_line() -> None:
    assert checks(home_dir_exists=False)["home_dir"].verdict is Verdict.NOTE
    assert "home_dir" not in checks(home_dir=None)


def test_entries_of_pythonpath_that_do_not_exist_are_named() -> None:
    found = checks(not_there=("/home/zorro/tools", "/home/zorro/rlops"))["PYTHONPATH"]
    assert found.verdict is Verdict.NOTE
    assert "/home/zorro/tools, /home/zorro/rlops" in found.says
    assert "PYTHONPATH" not in checks(search_path=0)


OLD = {"package": "/home/zorro/old/ray_multicluster_scheduler/__init__.py", "package_version": "0.0.1"}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        (OLD, Verdict.PROBLEM, "0.0.1 from /home/zorro/old"),
        ({**OLD, "package_version": None}, Verdict.PROBLEM, "of unknown version"),
        ({"package_problem": "RuntimeError: too old"}, Verdict.PROBLEM, "RuntimeError: too old"),
        ({"package": None}, Verdict.PROBLEM, "cannot be imported"),
        ({"carried": None}, Verdict.OK, "jobs carry none here"),
        ({"carried": None, **OLD}, Verdict.PROBLEM, f"and {__version__} here"),
        ({"carried": None, "package": None}, Verdict.OK, "none"),
    ],
)
def test_the_package_that_is_imported_must_be_the_one_that_the_job_carried(
    changes: dict[str, Any], verdict: Verdict, words: str
) -> None:
    found = checks(**changes)["this package"]
    assert (found.verdict, words in found.says) == (verdict, True), found.says
    assert (verdict is Verdict.PROBLEM) == bool(found.advice)


@pytest.mark.parametrize(
    ("clock", "verdict", "words"),
    [
        (NOW - 4.9, Verdict.OK, "at most 8.9 s apart"),
        (NOW + 1, Verdict.OK, "at most 3.0 s apart"),
        (NOW + 4 + 4.9, Verdict.OK, "at most 8.9 s apart"),
        (NOW - 3600, Verdict.NOTE, "at least 3600 s behind ours"),
        (NOW + 4 + 90, Verdict.NOTE, "at least 90 s ahead of ours"),
    ],
)
def test_a_clock_is_wrong_only_if_no_moment_of_the_job_explains_it(
    clock: float, verdict: Verdict, words: str
) -> None:
    found = checks(clock=clock)["clock"]
    assert (found.verdict, words in found.says) == (verdict, True), found.says


def test_too_little_room_is_a_problem() -> None:
    assert checks(temp_free=int(GIB) - 1)["disk"].verdict is Verdict.PROBLEM


def test_the_line_is_found_in_a_log_that_quotes_the_program_itself() -> None:
    log = f"Running entrypoint: {entrypoint()}\nnoise\n{MARK}{json.dumps(asdict(FOUND))}\nmore\n"
    assert found_in(log) == FOUND


@pytest.mark.parametrize("line", ["", f"{MARK}{{", f'{MARK}{{"host": 1}}', f"x {MARK}{{}}"])
def test_a_log_without_a_line_that_can_be_read_has_no_result(line: str) -> None:
    assert found_in(f"Running entrypoint: {entrypoint()}\n{line}\n") is None


def test_the_program_itself_tells_of_this_python(tmp_path: Path) -> None:
    shell, _, program = shlex.split(entrypoint())
    assert shell == "python"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{tmp_path}:{tmp_path / 'missing'}", "home_dir": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = found_in(told.stdout)
    assert found is not None
    assert (found.prefix, found.conda) == (sys.prefix, "")
    assert (found.search_path, found.not_there) == (2, (str(tmp_path / "missing"),))
    assert (found.home_dir, found.home_dir_exists) == (str(tmp_path / "home"), False)
    assert (found.package_version, found.package_problem) == (__version__, "")


@pytest.mark.parametrize("status", [AttemptStatus.PENDING, AttemptStatus.RUNNING])
def test_a_job_that_does_not_end_says_what_it_was_doing(status: AttemptStatus) -> None:
    found = late("raymc-probe-1", Sighting(remote_id="raymc-probe-1", status=status), 120.0)
    assert found.verdict is Verdict.PROBLEM
    assert ("not ready" in found.says) == (status is AttemptStatus.PENDING)
    assert "120 s" in found.says


def test_a_failed_environment_is_told_in_the_words_of_ray_and_another_failure_by_the_end_of_the_log() -> None:
    seen = Sighting(
        remote_id="r",
        status=AttemptStatus.FAILED,
        failure=FailureKind.NO_ENVIRONMENT,
        message="the conda environment 'ts' doesn't exist",
    )
    assert "the conda environment 'ts' doesn't exist" in failed(seen, "").says
    died = replace(seen, failure=FailureKind.USER)
    assert "sh: python: not found" in failed(died, "Running\nsh: python: not found\n\n").says


@pytest.mark.parametrize("name", ["dashboard", "token", "nodes and jobs", "environment"])
def test_no_job_is_sent_where_none_can_start(name: str) -> None:
    assert not can_run([Check(name=name, verdict=Verdict.PROBLEM, says="")])
    assert can_run([Check(name=name, verdict=Verdict.NOTE, says="")])
    assert can_run([Check(name="Ray Client", verdict=Verdict.PROBLEM, says="")])
