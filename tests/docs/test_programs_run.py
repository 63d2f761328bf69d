"""The README's program and the whole quickstart, word for word, on real clusters."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pages import DOCS, ROOT, blocks

from ray_multicluster_scheduler.local import Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

#: What the quickstart says before there is a `raymc`, about the reader's own clusters, and to end ours.
NOT_HERE = ("python3 -m venv", "raymc config check clusters.yaml", "raymc local down")


def run(command: list[str], sandbox: Sandbox, folder: Path) -> str:
    """Run a command as a user of the sandbox would, and return what it printed."""
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "RAY_MULTICLUSTER_HOME": str(sandbox.config_path.parents[1]),
    }
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, env=environ, cwd=folder, check=False, **output)
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


def test_the_program_of_the_readme_runs(sandbox: Sandbox, tmp_path: Path) -> None:
    program, _ = blocks("python", pages=[ROOT / "README.md"])  # test_ray_client_page.py runs the other one
    printed = run([sys.executable, "-c", program.text], sandbox, tmp_path)
    logs = re.split(r"^(?:centos|mac)\nSUCCEEDED\n", printed, flags=re.MULTILINE)[1:]
    assert len(logs) == 4
    # Ray writes a line of its own into each log, which may come after that of a fast program.
    assert all(str(n**2) in log.splitlines() for n, log in enumerate(logs))


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("tasks-and-actors.md", ["('000300', 'test', 'weights.pt')", "('000852', 'train', 'weights.pt')"]),
        ("python.md", ["332833500", "<ActorPool Model: "]),
        ("python.zh-CN.md", ["332833500", "<ActorPool Model: "]),
    ],
)
def test_the_pool_of_a_page_runs(sandbox: Sandbox, tmp_path: Path, page: str, shown: list[str]) -> None:
    (program,) = [each for each in blocks("python", pages=[DOCS / page]) if "submit_actor_pool(" in each.text]
    path = tmp_path / "program.py"
    path.write_text(program.text)
    printed = run([sys.executable, str(path)], sandbox, tmp_path)
    assert [words for words in shown if words not in printed] == []


def test_the_quickstart_works_word_for_word(sandbox: Sandbox, tmp_path: Path) -> None:
    steps = [
        f"python - <<'PROGRAM'\n{block.text}PROGRAM\n" if block.kind == "python" else block.text
        for block in blocks("bash", "python", pages=[DOCS / "quickstart.md"])
        if not block.text.startswith(NOT_HERE)
    ]
    assert steps[0].startswith("raymc local up")  # the very clusters that the sandbox has: it stays as it is
    printed = run(["bash", "-euxc", "".join(steps)], sandbox, tmp_path)
    for words in ("hello from ", "my own code", "8 SUCCEEDED", "needs 4 CPU; free: 0 CPU of 4 CPU", "\n42\n"):
        assert words in printed
