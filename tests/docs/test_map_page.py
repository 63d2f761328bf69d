"""Every program of the page about maps runs, on clusters inside this process."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pages import DOCS, Block, blocks
from tests.support.waiting import PATIENCE_S

PAGES = [DOCS / "map.md", DOCS / "map.zh-CN.md"]
PROGRAMS = blocks("python", pages=PAGES[:1])
AROUND = """\
import ray_multicluster_scheduler.testing as testing
with testing.InProcessClusters({"mac": {"CPU": 2}, "centos": {"CPU": 4}}):
    exec(compile(open(r"PROGRAM").read(), "program", "exec"), {"__name__": "__main__"})
"""
PRINTED = {
    "def square": "998001",
    "put_everywhere": str(sum(range(0, 1_000_000, 1_000))),
    "as_completed": str(sum(number**2 for number in range(100))),
    "GridSearchCV": "{'C': 1, 'kernel': 'linear'}",
    "async def main": "9",
    "clusters.kill": "",
}


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs_and_prints_what_it_should(block: Block, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block.text)
    command = [sys.executable, "-c", AROUND.replace("PROGRAM", str(program))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (expected,) = [words for mark, words in PRINTED.items() if mark in block.text]
    assert done.stdout.splitlines()[-1:] == ([expected] if expected else [])


def test_both_pages_have_the_same_programs() -> None:
    english, chinese = ([block.text for block in blocks("python", pages=[page])] for page in PAGES)
    assert english == chinese
    assert len(english) == len(PRINTED)
