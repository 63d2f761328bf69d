"""The list of commands says what the commands say, and costs little to show."""

import inspect
import subprocess
import sys

import pytest

from ray_multicluster_scheduler.cli.commands import Commands

GROUP = Commands(name="raymc")
#: What a help text must not wait for.
SLOW = {"aiohttp", "numpy", "pandas", "pydantic", "ray", "sqlalchemy"}


@pytest.mark.parametrize("name", GROUP.entries)
def test_the_list_says_the_first_sentence_of_each_command(name: str) -> None:
    about = inspect.cleandoc(GROUP.load(name).help).split("\n\n")[0].replace("\n", " ")
    assert GROUP.entries[name].about == about


def modules_of(*arguments: str, **environ: str) -> set[str]:
    """Run a command in a process of its own and return the packages that it has imported."""
    program = f"""
import contextlib, io, os, sys
sys.argv = ["raymc", *{arguments!r}]
os.environ.update({environ!r})
from ray_multicluster_scheduler.cli.main import main
out = io.StringIO()
try:
    with contextlib.redirect_stdout(out):
        main()
except SystemExit as ended:
    assert not ended.code, ended.code
assert out.getvalue()
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_help_text_waits_for_nothing_that_it_does_not_show() -> None:
    assert modules_of("--help") & SLOW == set()
