"""What CONTRIBUTING says is enough is enough: each list was followed, and the diff is kept beside this file.

A diff is applied to a copy of the project, where its own test and all of `tests/unit` run. When one no longer
applies, do its exercise again and keep the new diff. It should not have become longer.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXERCISES = Path(__file__).parent / "exercises"
PACKAGE = "src/ray_multicluster_scheduler/"
#: For each exercise: the files that it may touch, beside its own test.
LISTS: dict[str, set[str]] = {
    "job_field": {
        "model/job_options.py",
        "client/job_functions.py",
        "dashboard/job_form.py",
        "dashboard/catalogue/submit.yaml",
    },
    "placement_rule": {"core/placement/checks.py"},
    "score_part": {"core/placement/scoring.py", "core/rules.py"},
    "command": {"cli/registry.py", "cli/commands/where.py"},
}


def touched(exercise: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(.+)$", (EXERCISES / f"{exercise}.patch").read_text(), re.M)


def test_every_exercise_is_done() -> None:
    assert {path.stem for path in EXERCISES.glob("*.patch")} == LISTS.keys()


@pytest.mark.parametrize("exercise", LISTS)
def test_no_other_file_needs_to_be_touched(exercise: str) -> None:
    source = {path.removeprefix(PACKAGE) for path in touched(exercise) if path.startswith(PACKAGE)}
    assert source == LISTS[exercise]
    assert len(touched(exercise)) == len(source) + 1


@pytest.mark.parametrize("exercise", LISTS)
def test_the_patch_fits_the_code_as_it_is(exercise: str) -> None:
    run("git", "apply", "--check", str(EXERCISES / f"{exercise}.patch"), folder=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", LISTS)
def test_who_follows_the_list_is_done(exercise: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
    patch = EXERCISES / f"{exercise}.patch"
    # Beside a repository git leaves out what is not below it; so it is told that here is none.
    run("git", "apply", str(patch), folder=folder, GIT_CEILING_DIRECTORIES=str(tmp_path))
    own = [path for path in touched(exercise) if path.startswith("tests/")]
    run(sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", *own, "tests/unit", folder=folder)
    print(f"{exercise}: a person edits {len(LISTS[exercise])} files and writes a test")


def run(*command: str, folder: Path, **environ: str) -> None:
    paths = f"{folder / 'src'}:{folder}"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": paths, "LANG": "C.UTF-8", **environ}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
