"""The setup of the demo: a temporary directory with two homes, and two real clusters."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from ray_multicluster_scheduler.background.launch import end_schedulers
from ray_multicluster_scheduler.config.find import CONFIG_VARIABLE, HOME_VARIABLE
from ray_multicluster_scheduler.demo import programs
from ray_multicluster_scheduler.local import HeadSpec, Sandbox

#: As in the users' report, both jobs request 16 CPUs. Ray only counts them: the machine may have fewer.
CPUS = 16
HOMES = {"centos": "home/zorro", "mac": "Users/zorro"}
#: The conda environments of the report. They are shown, not used: this machine need not have them.
CONDAS = {"centos": "ts", "mac": "k8s"}
#: What each head has, in the words of `HeadSpec`.
Machines = Mapping[str, Mapping[str, Any]]
MACHINES: Machines = {name: {"cpus": CPUS} for name in HOMES}
#: Here a killed head ends its jobs at once, so the 90 s of production are not needed as evidence.
SETTINGS: Mapping[str, Any] = {
    "probe_interval_s": 1,
    "poll_interval_s": 0.5,
    "retry_delay_s": 1,
    "unreachable_after_s": 4,
    "lost_after_refused_s": 8,
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The clusters, not started yet, and their files."""

    folder: Path
    sandbox: Sandbox

    @property
    def config(self) -> Path:
        """The clusters.yaml of the demo."""
        return self.folder / "clusters.yaml"

    @property
    def config_with_conda(self) -> Path:
        """The same clusters.yaml with the conda environments of the report, for a dry run."""
        return self.folder / "with-conda.yaml"

    def home(self, cluster: str) -> Path:
        """Return the home directory that a cluster's environment names."""
        return self.folder / HOMES[cluster]

    def write_config(self, settings: Mapping[str, Any] = SETTINGS) -> None:
        """Add the demo's settings to the sandbox's configuration; the programs read a copy in their home."""
        document: dict[str, Any] = yaml.safe_load(self.sandbox.config_path.read_text())
        document["scheduler"] = dict(settings)
        for path in (self.config, *(self.home(cluster) / programs.CONFIG for cluster in HOMES)):
            path.write_text(yaml.safe_dump(document, sort_keys=False))
        for name, entry in document["clusters"].items():
            entry["runtime_env"] = {"conda": CONDAS[name], **entry["runtime_env"]}
        self.config_with_conda.write_text(yaml.safe_dump(document, sort_keys=False))


@contextmanager
def set_up(machines: Machines = MACHINES) -> Iterator[Stage]:
    """Create the files; at the end remove them and stop every process, however the demo ends."""
    folder = Path(tempfile.mkdtemp(prefix="raymc-demo-")).resolve()
    state = folder / "raymc"
    os.environ[HOME_VARIABLE] = str(state)
    os.environ[CONFIG_VARIABLE] = str(folder / "clusters.yaml")
    try:
        _unwind_on_signals()
        yield Stage(folder=folder, sandbox=_sandbox(folder, state, machines))
    finally:
        _hold_signals()
        end_schedulers(state)
        Sandbox.clean(state)
        shutil.rmtree(folder)


def _sandbox(folder: Path, state: Path, machines: Machines) -> Sandbox:
    heads = []
    for name, below in HOMES.items():
        home = folder / below
        programs.install(home, name)
        heads.append(HeadSpec(name=name, runtime_env=programs.runtime_env(home), **machines[name]))
    return Sandbox(state, heads)


def _unwind_on_signals() -> None:
    """Make Ctrl-C, SIGHUP and SIGTERM end the demo with its cleanup, once."""

    def end(number: int, _frame: FrameType | None) -> None:
        _hold_signals()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    for each in _SIGNALS:
        signal.signal(each, end)


def _hold_signals() -> None:
    """Ignore signals during the cleanup: a second Ctrl-C must not leave clusters behind."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
