"""The output of the demo: a few lines per step, in a terminal, a pipe or a recording."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.local import Phase

#: Variables that override the address on Ray's command line.
_OTHER_ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
_INDENT = (0, 0, 0, 3)
_STYLES = {"SUCCEEDED": "green", "FAILED": "red", "STOPPED": "yellow"}


class Narrator:
    """Prints the steps of the demo and measures the time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the demo."""
        return time.monotonic() - self._began

    def title(self, number: int, sentence: str) -> None:
        """Begin a step."""
        self._console.print()
        self._console.print(
            Text.assemble((f"{number}. {sentence}", "bold"), (f"  ({self.elapsed_s:.0f} s)", "dim"))
        )

    def line(self, sentence: str) -> None:
        """Print what happens next."""
        self._console.print(Padding(Text(sentence), _INDENT))

    def fact(self, sentence: str) -> None:
        """Print a result without wrapping, so that a path stays in one piece."""
        self._console.print(Text("   " + sentence, style="cyan"), soft_wrap=True)

    def error(self, message: str) -> None:
        """Show the message that a user gets."""
        for line in message.splitlines():
            self._console.print(Text("   " + line, style="red"), soft_wrap=True)

    def phase(self, cluster: str, phase: Phase) -> None:
        """Print the progress of the start of a cluster."""
        self.fact(f"{cluster}: {phase.value} ({self.elapsed_s:.0f} s)")

    def raymc(self, *arguments: str) -> None:
        """Run the command line as a user would, and show what it prints."""
        self._run("raymc", "ray_multicluster_scheduler.cli.main", arguments)

    def ray(self, *arguments: str) -> None:
        """Run Ray's own command line, and show what it prints."""
        self._run("ray", "ray.scripts.scripts", arguments)

    def _run(self, name: str, module: str, arguments: Sequence[str]) -> None:
        self._console.print(Text(f"   $ {name} {' '.join(arguments)}", style="bold"), soft_wrap=True)
        environ = {**os.environ, "COLUMNS": str(self._console.width - 3)}
        for other in _OTHER_ADDRESSES:
            environ.pop(other, None)
        if self._console.is_terminal:
            environ["FORCE_COLOR"] = "1"
        else:  # a recording has the output of a terminal, without colours
            environ |= {"TTY_COMPATIBLE": "1", "TERM": "dumb", "LINES": "50"}
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        self._console.print(Padding(Text.from_ansi(done.stdout.strip("\n")), _INDENT), soft_wrap=True)

    def summary(self, jobs: Sequence[Mapping[str, Any]], *, root: Path) -> None:
        """Print which job ran where with which environment."""
        table = Table(
            "job", "state", "ran on", "home_dir of its environment", title="What ran where", box=SIMPLE
        )
        for job in jobs:
            home = job["runtime_env"].get("env_vars", {}).get("home_dir", "-").replace(str(root), "…")
            state = Text(job["state"], style=_STYLES.get(job["state"], ""))
            clusters = ", then ".join(attempt["cluster"] for attempt in job["attempts"])
            table.add_row(job["submission_id"], state, clusters, home)
        self._console.print()
        self._console.print(table)
