"""The list of commands says what the commands say, and costs little to show."""

import inspect
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.cli.options.common import EXAMPLES
from ray_multicluster_scheduler.cli.registry import Commands, app
from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.store import open_store

GROUP = Commands(name="raymc")
#: What a help text must not wait for.
SLOW = {"aiohttp", "alembic", "numpy", "pandas", "ray", "sqlalchemy"}


@pytest.mark.parametrize("name", GROUP.entries)
def test_the_list_says_the_first_sentence_of_each_command(name: str) -> None:
    about = inspect.cleandoc(GROUP.load(name).help).split("\n\n")[0].replace("\n", " ")
    assert GROUP.entries[name].about == about


def modules_of(*arguments: str, **environ: str) -> set[str]:
    """Run a command in a process of its own and return the modules that it has imported."""
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
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("line", ["raymc dr", "raymc submit --clu", "raymc jobs --cluster ", "raymc status "])
def test_a_tab_waits_for_no_library_of_the_scheduler(line: str, tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: {mac: {head_address: 'mac:10001'}}")
    folder = state_dir(tmp_path / "clusters.yaml", {"RAY_MULTICLUSTER_HOME": str(tmp_path)})
    with closing(open_store(folder)) as store:
        store.jobs.add([("sub_1", a_spec())], now=NOW)
    typed = {"_RAYMC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    config = str(tmp_path / "clusters.yaml")
    home = {"RAY_MULTICLUSTER_HOME": str(tmp_path), "RAY_MULTICLUSTER_CONFIG": config}
    assert modules_of(**typed, **home) & SLOW == set()


@pytest.mark.parametrize("words", [["submit", "--no-wait", "--", "true"], ["jobs"]])
def test_where_somebody_schedules_a_client_imports_neither_engine_nor_planner(
    words: list[str], tmp_path: Path
) -> None:
    config = tmp_path / "clusters.yaml"
    config.write_text("clusters: {mac: {head_address: 'mac:10001'}}")
    home = {"RAY_MULTICLUSTER_HOME": str(tmp_path), "RAY_MULTICLUSTER_CONFIG": str(config)}
    with closing(open_store(state_dir(config, home))) as store:
        assert store.leases.acquire("leader", ttl_s=3600, now=time.time())
        found = modules_of(*words, RAY_MULTICLUSTER_BACKGROUND="0", **home)
    ours = {name.removeprefix("ray_multicluster_scheduler.") for name in found}
    assert ours & {"core.placement.plan", "core.state", "engine", "cluster_health.watch"} == set()
    assert found & {"aiohttp", "fastapi", "numpy"} == set()


def test_the_help_text_waits_for_nothing_that_it_does_not_show() -> None:
    assert modules_of("--help") & SLOW == set()


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that answers by itself, and return what it said."""
    with pytest.raises(SystemExit, match="0"):
        app(list(words), prog_name="raymc")
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["", "submit", "jobs", "stop", "logs", "wait", "serve", "db", "db move", "local", "local status"]
)
def test_help_has_its_own_examples_and_no_types(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, *name.split(), "--help")
    for noise in ("<bool>", "<list", "<int", "<float>", "<str>", "[[ID]", "<=x"):
        assert noise not in shown
    assert ("Examples:" in shown) == (name in EXAMPLES)
    if name in EXAMPLES:
        assert EXAMPLES[name].splitlines()[0] in shown


def test_every_example_belongs_to_a_command() -> None:
    for words in EXAMPLES:
        first, _, second = words.partition(" ")
        assert not second or second in GROUP.load(first).commands
        assert first in GROUP.entries


def test_help_at_80_columns_is_not_a_narrow_strip(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = told(capsys, "serve", "--help")
    assert "…" not in shown
    assert "ray.init('ray://...')" in shown


@pytest.mark.parametrize(
    "words", [["-h"], ["help"], ["help", "submit"], ["submit", "-h"], ["help", "db", "move"]]
)
def test_help_is_asked_for_in_many_ways(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert f"Usage: raymc {' '.join(words).replace('help', '').replace('-h', '').strip()}" in told(
        capsys, *words
    )


def test_version_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "version") == told(capsys, "--version")


@pytest.mark.parametrize(
    ("word", "command"), [("ls", "jobs"), ("list", "jobs"), ("describe", "info"), ("show", "info")]
)
def test_a_habit_that_changes_nothing_is_answered(
    word: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"Usage: raymc {command} " in told(capsys, word, "--help")


@pytest.mark.parametrize(
    ("word", "way"),
    [
        ("run", "submit --"),
        ("rerun", "retry"),
        ("queue", "jobs"),
        ("tail", "logs -f"),
        ("kill", "stop"),
        ("rm", "delete"),
    ],
)
def test_a_habit_that_changes_something_is_shown_the_way(
    word: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        app([word, "x"], prog_name="raymc")
    assert f"raymc {way}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jobs", "--state", "done"], "'--state': 'done' is not one of"),
        (["submit", "--cpus", "abc", "--", "true"], "a number is wanted, such as 4 or 0.5"),
        (["submit", "--priority", "1.5", "--", "true"], "a whole number is wanted"),
        (["logs", "x", "--tail", "-3"], "it must be 0 or more"),
        (["submit", "--name", "x", "python", "-c", "a b"], "raymc submit --name x -- python -c 'a b'"),
        (["submit", "--no-wait"], "the command is missing; it comes last, after `--`"),
    ],
)
def test_a_mistake_is_told_in_plain_words(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="2"):
        app(words, prog_name="raymc")
    told = capsys.readouterr().err
    assert said in told
    for jargon in ("Input should", "Value error", "unable to parse"):
        assert jargon not in told
