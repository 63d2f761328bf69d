"""Runs the real `raymc` in a process of its own, against clusters that live in the test's event loop."""

import asyncio
import atexit
import os
import pty
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ray_multicluster_scheduler.model.cluster import ClusterSpec

COMMAND = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main"]


@dataclass(frozen=True, kw_only=True)
class Done:
    code: int
    out: str
    err: str


def write_config(folder: Path, specs: Iterable[ClusterSpec], **settings: Any) -> Path:
    """Write a clusters.yaml with the addresses, tags and token variables of some clusters."""
    clusters = {
        spec.name: {
            "head_address": spec.head_address,
            "dashboard": spec.dashboard,
            "runtime_env": dict(spec.runtime_env),
            "tags": list(spec.tags),
            "auth_token_env": spec.auth_token_env,
            "max_resources": spec.max_resources,
            "drained": spec.drained,
        }
        for spec in specs
    }
    path = folder / "clusters.yaml"
    path.write_text(yaml.safe_dump({"clusters": clusters, "scheduler": settings}))
    return path


@cache
def home() -> str:
    """Return a home directory of this run of the tests: what another run has left must not be found."""
    folder = tempfile.TemporaryDirectory(prefix="raymc-home-")
    atexit.register(folder.cleanup)
    return folder.name


def environment(columns: int | None = None, **more: str) -> dict[str, str]:
    """Return a plain environment: nothing of the user's own set-up changes what is printed."""
    plain = {"PATH": os.environ["PATH"], "HOME": home(), "LANG": "C.UTF-8", "TERM": "xterm"}
    return {**plain, **({"COLUMNS": str(columns)} if columns else {}), **more}


def screen(columns: int) -> dict[str, str]:
    """Return what makes a pipe a terminal of this width, one without colours, for those who set it up."""
    return {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": str(columns), "LINES": "40"}


async def raymc(*arguments: str | Path, environ: Mapping[str, str]) -> Done:
    """Run `raymc` to its end, with its output in pipes."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Done(code=process.returncode, out=out.decode(), err=err.decode())


class Terminal:
    """A `raymc` that runs in a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, screen: int) -> None:
        self.process = process
        self.screen = screen
        self.seen = ""

    async def until(self, words: str) -> None:
        """Read until these words were shown; the test's own time-out ends a wait in vain."""
        while words not in self.seen:
            self.seen += (await asyncio.to_thread(os.read, self.screen, 65536)).decode()


@asynccontextmanager
async def in_terminal(*arguments: str | Path, environ: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Start `raymc` in a terminal of its own."""
    screen, keyboard = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, env=environ, stdin=keyboard, stdout=keyboard, stderr=keyboard
    )
    os.close(keyboard)
    try:
        yield Terminal(process, screen)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(screen)
