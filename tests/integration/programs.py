"""Runs a user's program in a process of its own, against clusters that live in the test's event loop."""

import asyncio
import signal
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.raymc import environment
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str


async def run_program(text: str, environ: Mapping[str, str], *, interrupt_at: str | None = None) -> Ended:
    """Run a program to its end; it is interrupted with Ctrl-C when it has printed `interrupt_at`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        "-c",
        textwrap.dedent(text),
        env=environment(**environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    seen = b""
    try:
        while interrupt_at is not None and interrupt_at.encode() not in seen:
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
            assert line, f"it ended before it said {interrupt_at!r}"
            seen += line
        if interrupt_at is not None:
            process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
    return Ended(code=process.returncode or 0, out=(seen + out).decode(), err=err.decode())
