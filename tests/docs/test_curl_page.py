"""The commands of the page about curl, word for word, against a server on fake clusters."""

import asyncio
import json
from pathlib import Path

from tests.support.pages import DOCS, blocks, commands
from tests.support.serving import live
from tests.support.system import System, fake

from ray_multicluster_scheduler.server.app import create_app

SAID = "http://127.0.0.1:8700"
PAGE = DOCS / "how-to" / "curl.md"


async def shell(command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-euc", command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, f"{command}\n{out.decode()}\n{err.decode()}"
    return out.decode()


async def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    shown = [each for block in blocks("bash", pages=[PAGE]) for each in commands(block)]
    asked = [command for command in shown if command != "raymc serve"]
    assert len(asked) == len(shown) - 1
    answers: dict[str, str] = {}
    async with System(tmp_path, fake("a"), fake("b")) as system:
        with live(create_app(system.scheduler)) as address:
            for command in asked:
                assert SAID in command
                answers[command.partition(SAID)[2].split()[0].strip("'")] = await shell(
                    command.replace(SAID, address)
                )
            (lost,) = [each for block in blocks("console", pages=[PAGE]) for each in commands(block)]
            assert json.loads(await shell(lost.replace(SAID, address)))["error"]["type"] == "JobNotFound"
    assert json.loads(answers["/api/v1/jobs"])["submission_id"] == "hello-1"
    assert '"SUCCEEDED"' in answers["/api/v1/jobs/changes"]
    assert answers["/api/v1/jobs/hello-1/logs/tail"].endswith("\nhello\n")
    assert len(json.loads(answers["/api/v1/jobs?group=parts&limit=2"])["jobs"]) == 2
