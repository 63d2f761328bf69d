"""The page about plain Ray: its commands and its program are run, and its table has every key."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from tests.support.pages import DOCS, blocks, commands
from tests.support.raymc import environment
from tests.support.serving import live
from tests.support.system import System, fake

from ray_multicluster_scheduler.packages.uploads import MOST_BYTES, MOST_PACKAGES
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.service.request import KEYS
from ray_multicluster_scheduler.testing import ShellRunner

PAGE, CHINESE = DOCS / "how-to/plain-ray.md", DOCS / "how-to/plain-ray.zh-CN.md"
ADDRESS = "http://127.0.0.1:8700"
BIN = Path(sys.executable).parent
PATIENCE_S = 240.0


async def run(line: str, folder: Path, address: str) -> str:
    """Run a line of the page with another address; return what it says."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-ec", line.replace(ADDRESS, address)),
        cwd=folder,
        env=environment(PATH=f"{BIN}:/usr/bin:/bin", HOME=str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.mark.slow
async def test_the_commands_and_the_program_work(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "script.py").write_text("print('the script ran')\n")
    first, second = blocks("bash", pages=[PAGE])
    (program,) = blocks("python", pages=[PAGE])
    async with System(tmp_path / "state", fake("mac", 4, runner=ShellRunner())) as system:
        with live(create_app(system.scheduler)) as address:
            said = await run(first.text, folder, address)
            assert said.count("submitted successfully") == 2
            assert "the script ran" in said
            assert "Job 'nightly' deleted successfully" in said
            said = await run(f"export RAY_ADDRESS={ADDRESS}\n{second.text}", folder, address)
            assert "\nhello\n" in said
            (folder / "program.py").write_text(program.text.replace(ADDRESS, address))
            assert "Job" in await run(f"{sys.executable} program.py", folder, address)
    assert len(list(commands(first))) == 8


def test_both_languages_have_the_same_commands_and_programs() -> None:
    for kind in ("bash", "python", "text"):
        english, chinese = ([block.text for block in blocks(kind, pages=[page])] for page in (PAGE, CHINESE))
        assert english == chinese


def test_every_key_is_in_the_tables_and_no_other() -> None:
    for page in (PAGE, CHINESE):
        rows = [line for line in page.read_text().splitlines() if line.startswith("| `raymc.")]
        assert {key for row in rows for key in re.findall(r"`(raymc\.\w+)`", row)} == set(KEYS)


def test_the_limits_of_uploads_are_told() -> None:
    assert f"{MOST_PACKAGES:,}" in PAGE.read_text()
    assert f"{MOST_BYTES // 2**30} GiB" in PAGE.read_text()
