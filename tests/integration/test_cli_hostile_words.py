"""Words of a cluster, a job or a user never steer the terminal of whoever looks, in any command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.job_commands import Commands, commands
from tests.support.system import fake

from ray_multicluster_scheduler.model.states import JobState

EVIL = "\x1b]0;owned\x07\x1b[31m\u202e\u2066\x9b2J"
STEERING = set("\x07\x1b\x9b\u202e\u2066")
#: What Rich itself writes to a terminal without colours: bold, dim, and a cursor that is hidden and shown.
OURS = re.compile(r"\x1b\[(?:[0-37]?(?:;[0-37])*m|\?25[lh])")
LOOKS = [
    ["clusters"],
    ["doctor"],
    ["ps"],
    ["jobs"],
    ["jobs", "--limit", "1"],
    ["status", "bad"],
    ["info", "bad"],
    ["events", "bad"],
    ["explain", "bad"],
    ["status", "runs"],
    ["info", "runs"],
    ["wait", "bad"],
    ["submit", "--dry-run", "--name", EVIL, "--", f"echo {EVIL}"],
    ["config", "check"],
    ["stop", EVIL],
    ["drain", EVIL],
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A cluster that sends such words, a job that failed with them and one that runs with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        ray = fake("centos", 4, ray_version=f"2.60.0{EVIL}", python_version=f"3.11.7{EVIL}")
        folder: Path = tmp_path_factory.mktemp("hostile")
        with commands(folder, patch, ray) as raymc:
            told = ["--name", EVIL, "--metadata-json", json.dumps({EVIL: EVIL}), "--tag", EVIL]
            raymc.no_wait("--submission-id", "runs", *told, "--", f"echo {EVIL}; sleep 600")
            raymc.until("runs", JobState.RUNNING)
            raymc.in_loop(lambda: ray.fail_starts(f"JOB_{EVIL}"))
            raymc.run("submit", "--submission-id", "bad", *told, "--", f"exit 3 # {EVIL}")
            yield raymc


@pytest.mark.parametrize("terminal", ["0", "1"])
@pytest.mark.parametrize("command", LOOKS, ids=lambda command: " ".join(command[:2]))
def test_nothing_steers_the_terminal(
    world: Commands, monkeypatch: pytest.MonkeyPatch, command: list[str], terminal: str
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    done = world.run(*command)
    written = OURS.sub("", done.out + done.err)
    assert written.strip()
    assert not STEERING & set(written), written


@pytest.mark.parametrize("command", ["clusters", "jobs", "ps", "doctor"])
def test_json_holds_the_same_words_but_only_escaped(world: Commands, command: str) -> None:
    done = world.run(command, "--json")
    assert not STEERING & set(done.out)
    assert "owned" in done.out or command == "doctor"
