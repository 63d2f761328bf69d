"""A job on a real cluster submits jobs through a server that wants tokens."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from tests.e2e.test_plain_ray import BIN, RAYMC, Server
from tests.support.pages import DOCS, blocks
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow]

#: What the page says that other clients do inside a job.
(DOCUMENTED,) = (
    block.text
    for block in blocks("bash", pages=[DOCS / "how-to" / "use-a-server.md"])
    if "$RAY_MULTICLUSTER_TOKEN" in block.text
)
PROGRAM = f"""
import os, subprocess, time
from ray_multicluster_scheduler import submit_job, wait_for_all_jobs

wait_for_all_jobs([submit_job("echo inner", submission_id="inner")])
path = "{BIN}:" + os.environ["PATH"]
subprocess.run(["sh", "-ec", {DOCUMENTED!r}], env={{**os.environ, "PATH": path}}, check=True)
submit_job("sleep 600", submission_id="long")
print("MINE", os.environ["RAY_MULTICLUSTER_TOKEN"].replace("_", " ", 3), flush=True)
time.sleep(600)
"""


class User:
    """Asks a server with one token."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any = None) -> Any:
        """Return the answer, or the status of a refusal."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(f"{self.address}/api/v1/{path}", data, self._headers), timeout=60) as answer:
                return json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code

    def state(self, job: str) -> Any:
        return self.ask(f"jobs/{job}")["state"]


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[User]:
    """An administrator, for whom a server with one cluster runs."""
    with Sandbox(tmp_path / "sandbox", [HeadSpec(name="first", cpus=4)]) as sandbox:
        head = sandbox.heads["first"]
        config = tmp_path / "clusters.yaml"
        cluster = {"head_address": head.client_address, "dashboard": head.dashboard}
        config.write_text(yaml.safe_dump({"clusters": {"first": cluster}}))
        server = Server(tmp_path, config)
        try:
            create = ["token", "create", "--user", "ann", "--role", "admin", "--config", str(config)]
            made = subprocess.run(
                [*RAYMC, *create], env=server.environ, capture_output=True, text=True, check=True
            )
            yield User(server.address, made.stdout.strip())
        finally:
            server.stop()


def test_a_job_submits_its_children_with_a_token_that_ends_with_it(admin: User, tmp_path: Path) -> None:
    program = tmp_path / "outer.py"
    program.write_text(PROGRAM)
    until(lambda: User(admin.address, "nobody").ask("jobs") == 401)  # the server has heard of the token
    outer = {"entrypoint": f"{sys.executable} {program}", "submission_id": "outer", "stop_children": True}
    assert admin.ask("jobs", outer)["user"] == "ann"

    def printed() -> Any:
        log = admin.ask("jobs/outer/logs")
        assert admin.state("outer") not in {"FAILED", "SUCCEEDED"}, log
        return isinstance(log, dict) and re.search(
            r"^MINE (raymc job \d+ \S+)$", log["logs"] or "", re.MULTILINE
        )

    inside = User(admin.address, until(printed)[1].replace(" ", "_"))
    assert admin.state("inner") == "SUCCEEDED"
    *_, plain, inner = children = admin.ask("jobs?parent=outer")["jobs"]
    assert [child["user"] for child in children] == ["ann"] * 3
    assert (inner["submission_id"], plain["entrypoint"], plain["state"]) == (
        "inner",
        "echo hello",
        "SUCCEEDED",
    )
    assert '"inner"' in admin.ask("jobs/outer/logs")["logs"]  # what curl has printed
    assert inside.ask("me") == {"user": "ann", "role": "submit"}
    assert inside.ask("tokens") == 403

    admin.ask("jobs/stop", {"submission_ids": ["outer"]})
    until(lambda: [admin.state(job) for job in ("outer", "long")] == ["STOPPED"] * 2)
    until(lambda: inside.ask("me") == 401)
