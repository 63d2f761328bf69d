"""The stock `ray job`, in processes of their own."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.contract.ray_jobs.gateway import Gateway
from tests.support.raymc import environment
from tests.support.waiting import PATIENCE_S

RAY = Path(sys.executable).parent / "ray"
_END = "the end of a command: "
#: What `ray` does, for several commands: most of the time of each goes into starting Ray's command line.
_SEVERAL = f"""
import json, sys, traceback
from ray.scripts.scripts import cli

for words in json.load(sys.stdin):
    code = 0
    try:
        cli(["job", *words], prog_name="ray")
    except SystemExit as end:
        code = end.code
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    print(f"{_END}{{code or 0}}", flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    code: int
    out: str


class RayJob:
    """`ray job ...` with the address of a server."""

    def __init__(self, gateway: Gateway, home: Path) -> None:
        self.gateway = gateway
        self.system = gateway.system
        #: As the documents of Ray have it: in the environment.
        self.environ = environment(RAY_ADDRESS=gateway.address, HOME=str(home), RAY_JOB_HEADERS="{}")

    async def __call__(self, *words: str, cwd: Path | None = None) -> Done:
        return await self._run([str(RAY), "job", *words], cwd=cwd)

    async def several(self, commands: Sequence[Sequence[str]]) -> list[Done]:
        """Run commands one after the other in one process."""
        done = await self._run([sys.executable, "-c", _SEVERAL], told=json.dumps(commands))
        *parts, rest = done.out.split(_END)
        assert len(parts) == len(commands), done.out
        codes = [int(after.partition("\n")[0]) for after in (*parts[1:], rest)]
        texts = [parts[0], *(part.partition("\n")[2] for part in parts[1:])]
        return [Done(code=code, out=text) for code, text in zip(codes, texts, strict=True)]

    async def _run(self, command: Sequence[str], *, told: str = "", cwd: Path | None = None) -> Done:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=self.environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(told.encode()), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
        return Done(code=process.returncode or 0, out=out.decode())
