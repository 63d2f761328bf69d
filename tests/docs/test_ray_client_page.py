"""The page about Ray Client: programs and commands run on real clusters, numbers are those of the code."""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.pages import DOCS, ROOT, blocks, commands
from tests.support.raymc import COMMAND, environment

from ray_multicluster_scheduler.local import Sandbox
from ray_multicluster_scheduler.packages.pack import MAX_BYTES
from ray_multicluster_scheduler.ray_client.sessions import CLIENT_PYTHON, CLIENT_RAY, WAIT_S
from ray_multicluster_scheduler.service.request import KEYS

PAGE, CHINESE = DOCS / "ray-client.md", DOCS / "ray-client.zh-CN.md"
CLIENT_ADDRESS, HTTP_ADDRESS = "ray://127.0.0.1:10001", "http://127.0.0.1:8700"
BIN = Path(sys.executable).parent
#: Goes on after the program of the page with the options, so that there is a session to look at.
STAYS = """
import time
print("connected", flush=True)
time.sleep(600)
"""
#: A server notices its first token within a second.
UNTIL_TOKENS_ARE_WANTED = f"""
status() {{ curl -s -o /dev/null -w '%{{http_code}}' {HTTP_ADDRESS}/api/v1/sessions; }}
until test "$(status)" = 401; do sleep 0.1; done
"""

each_page = pytest.mark.parametrize("page", [PAGE, CHINESE], ids=lambda page: page.name)


@dataclass(kw_only=True)
class Reader:
    """Somebody who follows the page, in a directory of their own."""

    folder: Path
    state: Path
    client_address: str = ""
    http_address: str = ""
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return environment(
            PATH=f"{BIN}:/usr/bin:/bin",
            HOME=str(self.folder),
            RAY_MULTICLUSTER_HOME=str(self.state),
            COLUMNS="200",
            **self.more,
        )

    def here(self, text: str) -> str:
        """Replace the addresses of the page by those of this server."""
        return text.replace(CLIENT_ADDRESS, self.client_address).replace(HTTP_ADDRESS, self.http_address)

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def output(self, *command: str, code: int = 0) -> str:
        process = await self.start(*command)
        out, _ = await process.communicate()
        assert process.returncode == code, out.decode()
        return out.decode()

    async def program(self, text: str, code: int = 0) -> str:
        return await self.output(sys.executable, "-c", self.here(text), code=code)

    async def shell(self, line: str) -> str:
        return await self.output("bash", "-euc", self.here(line))


async def until(process: asyncio.subprocess.Process, words: str) -> str:
    """Read what a process says until a line holds these words."""
    assert process.stdout is not None
    seen = ""
    while line := (await process.stdout.readline()).decode():
        seen += line
        if words in line:
            return line
    raise AssertionError(seen)


@asynccontextmanager
async def serving(reader: Reader) -> AsyncIterator[None]:
    """Run the first command of the page, on free ports."""
    process = await reader.start(*COMMAND, "serve", "--port", "0", "--client-port", "0")
    try:
        reader.client_address = (await until(process, "  ray.init ")).split()[1]
        reader.http_address = (await until(process, "  REST ")).split()[1].removesuffix("/api/v1")
        await until(process, "SIGTERM or Ctrl-C")
        reading = asyncio.create_task(process.communicate())  # so that it never waits for us
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
    await reading


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_programs_and_commands_work(sandbox: Sandbox, tmp_path: Path) -> None:
    first, options, files, token, versions = (block.text for block in blocks("python", pages=[PAGE]))
    readme = blocks("python", pages=[ROOT / "README.md"])[-1].text
    serve, tls, *look = (each for block in blocks("bash", pages=[PAGE]) for each in commands(block))
    assert serve == "raymc serve --client-port 10001"
    assert "--ssl-certfile" in tls  # tests/integration has a server with a certificate
    reader = Reader(folder=tmp_path / "project", state=tmp_path / "home")  # tokens are for this store only
    reader.folder.mkdir()
    shutil.copy(sandbox.config_path, reader.folder / "clusters.yaml")
    (reader.folder / "names.txt").write_text("ann, bob")
    async with serving(reader):
        assert "[0, 1, 4, 9]" in await reader.program(first)
        assert re.search(r"\('(centos|mac)', 'trial', 'ann, bob'\)", await reader.program(files))
        await reader.program(versions)
        await reader.program(readme)
        other = versions.replace("ray.__version__", "'2.9.3'").replace(
            "platform.python_version())]", "'3.9.1'), ('raymc.queue_timeout', '1')]"
        )
        refused = await reader.program(other, code=1)
        assert "ConnectionAbortedError" in refused
        assert "this program has Ray 2.9.3 and Python 3.9" in refused

        explore = await reader.start(sys.executable, "-c", reader.here(options) + STAYS)
        await until(explore, "connected")
        ps, jobs, sessions, stop = look
        for line in (ps, jobs, sessions):
            said = await reader.shell(line)
            assert "session-" in said
            assert "mac" in said
        assert "STOPPED" in await reader.shell(stop)
        explore.kill()
        await explore.wait()

        made = await reader.output(*COMMAND, "token", "create", "--user", "ann", "--role", "submit")
        (shown,) = re.findall(r"raymc_[\w-]+", made)
        await reader.shell(UNTIL_TOKENS_ARE_WANTED)
        assert "this server wants a token" in await reader.program(first, code=1)
        reader.more = {"RAY_MULTICLUSTER_TOKEN": shown}
        await reader.program(token)
        reader.more = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": shown}
        assert "[0, 1, 4, 9]" in await reader.program(first)


def test_both_languages_have_the_same_commands_and_programs() -> None:
    for kind in ("bash", "python"):
        english, chinese = ([block.text for block in blocks(kind, pages=[page])] for page in (PAGE, CHINESE))
        assert english == chinese


@each_page
def test_every_option_in_the_table_is_one(page: Path) -> None:
    rows = [line.split(" | ")[0] for line in page.read_text().splitlines() if line.startswith("| `raymc.")]
    named = {key for row in rows for key in re.findall(r"`(raymc\.\w+)`", row)}
    assert {CLIENT_RAY, CLIENT_PYTHON, "raymc.cpus", "raymc.cluster"} <= named
    assert named <= {*KEYS, CLIENT_RAY, CLIENT_PYTHON}


@each_page
def test_its_numbers_are_those_of_the_code_and_of_ray(page: Path) -> None:
    from ray._private.ray_constants import DEFAULT_CLIENT_RECONNECT_GRACE_PERIOD
    from ray.util.client import common

    text = page.read_text()
    assert common.CLIENT_SERVER_MAX_THREADS == 100
    assert DEFAULT_CLIENT_RECONNECT_GRACE_PERIOD == WAIT_S == 30
    assert f"{MAX_BYTES // 2**20} MiB" in text
    assert f"{common.OBJECT_TRANSFER_WARNING_SIZE // 2**30} GiB" in text
