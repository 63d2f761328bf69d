"""Pipelines: five operators on the Ray engine of this machine, against the pandas engine.

Each side is a process of its own: wall time from reading to the last operator (a cluster that starts is not
in it), and the peak of the memory of that process with all of its children (PSS, so that what they share
counts once). `small store`: the same with an object store that is smaller than the input, so Ray spills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure import Line, Report, Size, main, ratio, summary

ROWS = {Size.SMOKE: 2_000, Size.QUICK: 1_000_000, Size.FULL: 5_000_000}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 1, Size.FULL: 3}
NUMBERS = 12
OPERATORS = ["SimpleImputer", "StandardScaler", "MinMaxScaler", "OrdinalEncoder", "Normalizer"]
MIB = 1024**2
#: Ray's least is 75 MiB.
SMALL_STORE = 80 * MIB
LARGE_STORE = 2048 * MIB
SIDE = """
import json, sys
from raymc_pipeline.plan import make_plan
operators, source, store = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
plan = make_plan(operators, source)
if store:
    import ray
    from raymc_pipeline.ray_engine import run_on_ray as run
    ray.init(object_store_memory=store, include_dashboard=False, log_to_driver=False)
else:
    from raymc_pipeline.pandas_engine import run_on_pandas as run
print(run(plan).seconds)
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one side needed."""

    seconds: float
    peak_bytes: int


def write_input(folder: Path, rows: int) -> Path:
    """Write numbers with gaps and one column of words."""
    random = np.random.default_rng(0)
    columns = {f"x{number}": random.normal(size=rows) for number in range(NUMBERS)}
    columns["x0"][random.random(rows) < 0.1] = np.nan
    frame = pd.DataFrame(columns).assign(city=random.choice(["Oslo", "Paris", "Rome"], rows))
    path = folder / "input.parquet"
    frame.to_parquet(path, row_group_size=max(1, rows // 8))
    return path


def run_side(source: Path, store_bytes: int) -> Run:
    """Run one engine in a process of its own and watch its memory; 0 bytes of object store mean pandas."""
    side = subprocess.Popen(
        [sys.executable, "-c", SIDE, json.dumps(OPERATORS), str(source), str(store_bytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Ray then stays on loopback, and a busy machine gets time to start it.
        env={**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_raylet_start_wait_time_s": "180"},
    )
    peak = 0
    while side.poll() is None:
        peak = max(peak, sum(pss(pid) for pid in tree(side.pid)))
        time.sleep(0.3)
    assert side.stdout is not None
    assert side.returncode == 0, f"the side with {store_bytes} bytes of object store failed"
    return Run(seconds=float(side.stdout.read().split()[-1]), peak_bytes=peak)


def tree(root: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has just ended
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def pss(pid: int) -> int:
    """Return the memory of a process in which shared pages count by their share; 0: it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def measure(size: Size) -> Report:
    """Measure both engines, and Ray with a small object store."""
    stores = {"pandas": 0, "ray": LARGE_STORE, "ray, small store": SMALL_STORE}
    found: dict[str, list[Run]] = {side: [] for side in stores}
    with tempfile.TemporaryDirectory() as folder:
        source = write_input(Path(folder), ROWS[size])
        for number in range(ROUNDS[size]):
            for side in list(stores) if number % 2 == 0 else list(reversed(stores)):
                found[side].append(run_side(source, stores[side]))
    lines: list[Line] = []
    for side, runs in found.items():
        lines.append(summary(f"{side}: time", [run.seconds for run in runs], unit="s"))
        lines.append(summary(f"{side}: peak memory", [run.peak_bytes / MIB for run in runs], unit="MiB"))
    for side in ("ray", "ray, small store"):
        pairs = list(zip(found[side], found["pandas"], strict=True))
        ours, theirs = zip(*pairs, strict=True)
        lines.append(ratio(f"{side} / pandas: time", [r.seconds for r in ours], [r.seconds for r in theirs]))
        lines.append(
            ratio(f"{side} / pandas: memory", [r.peak_bytes for r in ours], [r.peak_bytes for r in theirs])
        )
    in_memory = ROWS[size] * (NUMBERS * 8 + 8) / MIB
    note = f"{ROWS[size]:,} rows of {NUMBERS} numbers and a word: {in_memory:.0f} MiB; small store: 80 MiB."
    return Report(name="pipeline", lines=tuple(lines), notes=(note,))


if __name__ == "__main__":
    main(measure)
