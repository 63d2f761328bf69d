"""The stock `ray job`, in processes of their own."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.contract.ray_jobs.gateway import Gateway
from tests.integration.raymc import environment

RAY = Path(sys.executable).parent / "ray"
PATIENCE_S = 120.0


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
        process = await asyncio.create_subprocess_exec(
            RAY,
            "job",
            *words,
            cwd=cwd,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
        return Done(code=process.returncode or 0, out=out.decode())
