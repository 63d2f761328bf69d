"""Every benchmark runs, in a tiny size; what it finds is not judged here."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import page, postgres
from benchmarks.__main__ import names, run
from benchmarks.measure import Line, Report, in_turns, percentile, ratio, show
from benchmarks.plot import as_svg, margin
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
#: Those that need no Ray; each runs in a process of its own, as it is meant to.
NEED_NO_RAY = (
    "accept",
    "blocked_door",
    "dashboard",
    "memory",
    "plan",
    "postgres_queue",
    "queue",
    "react",
    "steady",
    "streams",
    "traces",
    "waiting",
)
ON_REAL_CLUSTERS = (
    "bridge",
    "burst",
    "client_port",
    "command",
    "gateway",
    "map",
    "pipeline",
    "place",
    "submit",
)


def check(name: str) -> None:
    """Run a benchmark in its smallest size. It must measure something, on every line of its report.

    Lines that count what must not happen, such as lost jobs, are zero where all is well.
    """
    report = run(name, "--smoke")
    assert report.name == name
    assert report.lines
    assert report.commit
    counts = ("failures", "lost of")
    lines = [line for line in report.lines if not any(word in line.what for word in counts)]
    assert [line.what for line in lines if not line.value > 0] == []


@pytest.mark.bench
@pytest.mark.parametrize("name", NEED_NO_RAY)
def test_a_benchmark_runs(name: str) -> None:
    if name == "postgres_queue" and (lacking := postgres.missing()):
        pytest.skip(lacking)
    check(name)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("name", ON_REAL_CLUSTERS)
def test_a_benchmark_on_real_clusters_runs(name: str) -> None:
    check(name)


def test_no_benchmark_is_forgotten() -> None:
    assert sorted(names()) == sorted([*NEED_NO_RAY, *ON_REAL_CLUSTERS])


def test_a_benchmark_that_lacks_something_says_what_and_fails() -> None:
    program = (
        "from benchmarks import measure\n"
        "def lacking(size): raise measure.CannotMeasure('not installed: peer')\n"
        "measure.main(lacking)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "not measured: not installed: peer\n")


def test_sides_are_measured_in_turns_and_the_first_one_alternates() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = in_turns({"a": lambda: side("a"), "b": lambda: side("b")}, rounds=2)
    assert order == ["a", "b", "b", "a"]
    assert found == {"a": [1.0, 4.0], "b": [2.0, 3.0]}


def test_a_ratio_is_the_median_of_the_rounds_with_its_spread() -> None:
    line = ratio("x", [1.0, 4.0, 9.0], [1.0, 2.0, 3.0], at_most=2.5)
    assert (line.value, line.low, line.high, line.met) == (2.0, 1.0, 3.0, True)


def test_a_missed_target_is_said() -> None:
    missed = Line(what="slow", value=3.0, at_most=2.0)
    assert "MISSED" in show(Report(name="x", lines=(missed,)))
    assert margin(missed) < 1 < margin(Line(what="fast", value=3.0, at_least=2.0))
    assert "slow" in as_svg([Report(name="x", lines=(missed,))])


def test_the_picture_shows_what_the_page_has_recorded() -> None:
    assert page.PICTURE.read_text() == as_svg(page.recorded())


def test_a_new_result_takes_the_place_of_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "picture.svg")
    page.PAGE.write_text(f"words\n\n{page.BEGIN}\n\n{page.END}\n\nmore words\n")
    line = Line(what="x", value=2.0, unit="×", at_most=3.0)
    old, other = (Report(name=name, load=1.5, notes=("so",), lines=(line,)) for name in ("old", "other"))
    page.record([old, other])
    lines = (
        Line(what="slow one", value=12.5, unit="ms", low=1.25, high=20.0, at_most=10.0),
        Line(what="fast one", value=4.0, at_least=3.0),
        Line(what="just told", value=1.0, unit="KiB"),
    )
    page.record([Report(name="old", load=2.0, notes=("one", "two"), lines=lines)])
    assert page.recorded() == [Report(name="old", load=2.0, notes=("one", "two"), lines=lines), other]
    text = page.PAGE.read_text()
    assert text.startswith("words\n")
    assert text.endswith("more words\n")
    assert "slow one" in page.PICTURE.read_text()
    page.record([])
    assert page.PAGE.read_text() == text


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([3.0, 1.0, 2.0], percent) for percent in (0, 50, 99)] == [1.0, 2.0, 3.0]


def test_a_benchmark_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    left = tmp_path / "left"
    program = f"""
import os, pathlib, signal
from benchmarks.measure import main

def measure(size):
    left = pathlib.Path({str(left)!r})
    left.touch()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        left.unlink()

main(measure)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 128 + signal.SIGTERM
    assert not left.exists()
