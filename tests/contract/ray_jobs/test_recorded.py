"""What a Ray dashboard was recorded to answer, asked of the server: the same status, type, keys and words.

`exchanges.json` holds the recorded answers (Ray 2.60): status, content type, the keys of JSON bodies in their
order, the last line of text bodies. `DIFFERENCES` is the whole list of what we answer otherwise, and why.
"""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.contract.ray_jobs.gateway import Gateway, a_gateway
from tests.support.system import fake
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.model.states import JobState

EXCHANGES: dict[str, dict[str, Any]] = {
    each["name"]: each for each in json.loads((Path(__file__).parent / "exchanges.json").read_text())
}
TEXT, JSON = "text/plain; charset=utf-8", "application/json; charset=utf-8"
MIB = 2**20

_IDS = "ids are letters, digits, '_', '.' and '-': others leave a job on a cluster that cannot be deleted"
_DRIVERS = (
    "drivers that no submission has started belong to one cluster; their ids are not unique over several"
)
_NO_500 = "a mistake of the caller is no trouble of the server; no client depends on the 500"
_PAGES = "pages of other places are refused altogether, where Ray lets them read: they could follow logs"
_NAMES = "packages are called as Ray's clients call them"

#: Name of the exchange: (our status, why). Where the status is the same, what is different is said.
DIFFERENCES: dict[str, tuple[int, str]] = {
    "list-noslash": (200, "Ray's own description of its interface has this path without the slash"),
    "post-noslash": (400, "as above; without a body it is refused as a submission"),
    "get-by-driver-id": (404, _DRIVERS),
    "drv-stop": (404, _DRIVERS),
    "drv-del": (404, _DRIVERS),
    "drv-logs": (404, _DRIVERS),
    "drv-tail": (404, _DRIVERS),
    "bad-json": (400, _NO_500),
    "empty-body": (400, _NO_500),
    "array": (400, _NO_500),
    "null": (400, _NO_500),
    "label-bad": (400, _NO_500),
    "cpu-neg": (400, "refused at once, where Ray's job fails later"),
    "get-neg": (404, "it was refused"),
    "renv-bad": (400, "an option that Ray ignores is a slip of the finger; it is named"),
    "get-renvbad": (404, "it was refused"),
    "empty-ent": (400, "a command that does nothing is a mistake"),
    "get-emptyent": (404, "it was refused"),
    "sid-weird-0": (400, _IDS),
    "sid-weird-0-get": (404, _IDS),
    "sid-weird-1": (400, _IDS),
    "sid-weird-1-get": (404, _IDS),
    "sid-weird-2": (400, _IDS),
    "sid-weird-2-get": (
        404,
        "Ray goes up one level in the path; an id of two points is as unknown as others",
    ),
    "sid-weird-3": (400, _IDS),
    "sid-weird-3-get": (404, _IDS),
    "sid-weird-4": (400, _IDS),
    "sid-weird-6": (400, _IDS),
    "sid-weird-7": (400, _IDS),
    "sid-weird-7-get": (404, _IDS),
    "sid-weird-8": (400, _IDS),
    "sid-weird-8-get": (404, _IDS),
    "tail-http-existing": (400, _NO_500),
    "get-inf-2": (200, "a queued job that is stopped has ended at once, where Ray's stays PENDING for ever"),
    "infeasible": (
        400,
        "no cluster could ever hold it: that is said at once, where Ray's job waits for ever",
    ),
    "pkg-put-txt": (400, _NAMES),
    "pkg-put-trav": (404, "a slash in a name, written as %2F or not, is no name of a package"),
    "pkg-put-empty": (400, _NAMES),
    "pkg-99M": (200, "under a name that Ray's clients make: e.zip and the like are refused"),
    "pkg-put-s3": (400, _NO_500),
    "pkg-get-s3": (400, _NO_500),
    "pkg-put-pip": (400, _NO_500),
    "pkg-put-bad": (400, _NO_500),
    "pkg-get-bad": (400, _NO_500),
    "submit-101M": (413, "the limit is 1 MiB: Ray's agent takes no larger job than that anyway"),
    "submit-3M-entry": (413, "Ray's dashboard takes it and its agent refuses it, inside of a 500"),
    "dotdot": (404, "an id with a slash is no path of ours"),
    "browser-post-Origin": (403, _PAGES),
    "browser-get-origin": (403, _PAGES),
    "browser-put": (403, _PAGES),
    "browser-delete": (403, _PAGES),
    "healthz": (404, "no path of Ray's clients: our own error shape, in JSON"),
    "raylet_healthz": (404, "no path of Ray's clients: our own error shape, in JSON"),
}
#: Their answers are JSON of our own interface.
IN_OUR_SHAPE = {"healthz", "raylet_healthz"}

#: What was sent. Requests without a body are not here.
BODIES: dict[str, Any] = {
    "submit-min": {"entrypoint": "echo hi"},
    "submit-full": {
        "entrypoint": "echo hi",
        "submission_id": "full_1",
        "runtime_env": {"env_vars": {"K": "value"}},
        "metadata": {"a": "b"},
    },
    "dup": {"entrypoint": "echo hi", "submission_id": "full_1"},
    "bad-key": {"entrypoint": "echo hi", "key": 1},
    "no-entry": {"submission_id": "x"},
    "bad-json": b"{nope",
    "empty-body": b"",
    "array": [],
    "null": None,
    "text-ctype": {"entrypoint": "echo hi"},
    "ent-int": {"entrypoint": 1},
    "meta-int": {"entrypoint": "echo", "metadata": {"a": 1}},
    "mem-float": {"entrypoint": "echo", "entrypoint_memory": 1.5},
    "cpu-str": {"entrypoint": "echo", "entrypoint_num_cpus": "1"},
    "cpu-neg": {"entrypoint": "echo", "entrypoint_num_cpus": -1, "submission_id": "neg"},
    "label-bad": {"entrypoint": "echo", "entrypoint_label_selector": {"a": "!!bad!!"}},
    "renv-bad": {"entrypoint": "echo", "runtime_env": {"nosuch": 1}, "submission_id": "renvbad"},
    "empty-ent": {"entrypoint": "", "submission_id": "emptyent"},
    "sid-weird-0": {"entrypoint": "echo", "submission_id": "a b"},
    "sid-weird-1": {"entrypoint": "echo", "submission_id": "a%2Fb"},
    "sid-weird-2": {"entrypoint": "echo", "submission_id": ".."},
    "sid-weird-3": {"entrypoint": "echo", "submission_id": "日本"},
    "sid-weird-4": {"entrypoint": "echo", "submission_id": "x" * 300},
    "sid-weird-5": {"entrypoint": "echo", "submission_id": ""},
    "sid-weird-6": {"entrypoint": "echo", "submission_id": "a/b"},
    "sid-weird-7": {"entrypoint": "echo", "submission_id": "a\nb"},
    "sid-weird-8": {"entrypoint": "echo", "submission_id": "a?b"},
    "sub-sleep": {"entrypoint": "sleep 100", "submission_id": "slp"},
    "fail": {"entrypoint": "echo before; exit 7", "submission_id": "f7"},
    "resubmit-deleted": {"entrypoint": "echo", "submission_id": "f7"},
    "infeasible": {"entrypoint": "echo hi", "entrypoint_num_cpus": 10_000, "submission_id": "never"},
    "pkg-put": b"zip",
    "pkg-put-again": b"another zip",
    "pkg-put-txt": b"text",
    "pkg-put-trav": b"zip",
    "pkg-put-s3": b"zip",
    "pkg-put-pip": b"zip",
    "pkg-put-bad": b"zip",
    "pkg-put-empty": b"",
    "pkg-big-101M": bytes(101 * MIB),
    "pkg-99M": bytes(99 * MIB),
    "submit-101M": bytes(101 * MIB),
    "submit-3M-entry": {"entrypoint": "echo " + "x" * 3 * MIB, "submission_id": "bigent"},
    "browser-post-Origin": {"entrypoint": "echo hi"},
    "browser-post-Referer": {"entrypoint": "echo hi"},
    "browser-post-Sec-Fetch-Mode": {"entrypoint": "echo hi"},
    "browser-post-User-Agent": {"entrypoint": "echo hi"},
    "browser-put": b"zip",
}
_PAGE = "https://elsewhere.example"
HEADERS = {
    "text-ctype": {"Content-Type": "text/plain"},
    "get-full-browser": {"User-Agent": "Mozilla/5.0"},
    "browser-post-Origin": {"Origin": _PAGE},
    "browser-post-Referer": {"Referer": _PAGE},
    "browser-post-Sec-Fetch-Mode": {"Sec-Fetch-Mode": "cors"},
    "browser-post-User-Agent": {"User-Agent": "Mozilla/5.0"},
    "browser-get-origin": {"Origin": _PAGE},
    "browser-put": {"Origin": _PAGE},
    "browser-delete": {"Origin": _PAGE},
}
#: Under another name than recorded, so that what is sent can be what was meant.
URLS = {
    "pkg-big-101M": "/api/packages/gcs/_ray_pkg_00000000000000000000.zip",
    "pkg-99M": "/api/packages/gcs/_ray_pkg_11111111111111111111.zip",
}
#: Ids that Ray has made, by the exchange that they came with.
RECORDED_IDS = {"submit-min": "raysubmit_GUVu2keeq2W6fFMt", "sid-weird-5": "raysubmit_31eWQhqVEKyJ1SQ5"}
#: What must have come of a job before the exchange.
UNTIL = {
    "get-succeeded": ("submit-min", JobState.SUCCEEDED),
    "get-full": ("full_1", JobState.SUCCEEDED),
    "get-running": ("slp", JobState.RUNNING),
    "get-stopped": ("slp", JobState.STOPPED),
    "get-failed": ("f7", JobState.FAILED),
    "get-inf-2": ("inf", JobState.STOPPED),
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    content_type: str | None
    allow: str | None
    body: bytes


class Replay:
    """Asks the same again, in the same order."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        #: Ids that the server has made, by the recorded ones.
        self.made: dict[str, str] = {}

    async def ask(self, name: str) -> Answer:
        recorded = EXCHANGES[name]
        if name in UNTIL:
            job, state = UNTIL[name]
            await self._gateway.system.until(self.made.get(job, job), state)
        url = URLS.get(name, recorded["url"])
        for old, new in self.made.items():
            url = url.replace(old, quote(new))
        given = BODIES.get(name, b"")
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        answer = await asyncio.to_thread(self._send, recorded["method"], url, body, HEADERS.get(name, {}))
        if name in RECORDED_IDS:
            made = json.loads(answer.body)["submission_id"]
            self.made |= {name: made, RECORDED_IDS[name]: made}
        return answer

    def _send(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection(
            self._gateway.address.removeprefix("http://"), timeout=PATIENCE_S
        )
        try:
            # What is refused while it is being sent has its answer all the same.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, url, body=body or None, headers=headers)
            got = connection.getresponse()
            return Answer(
                status=got.status,
                content_type=got.getheader("content-type"),
                allow=got.getheader("allow"),
                body=got.read(),
            )
        finally:
            connection.close()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with a_gateway(tmp_path, fake("a", 1)) as running:
        yield running


def problem(name: str, answer: Answer) -> str | None:
    """Say in what an answer is not the recorded one."""
    recorded, (status, why) = EXCHANGES[name], DIFFERENCES.get(name, (EXCHANGES[name]["status"], ""))
    said = f"{name}: {answer.status} {answer.content_type} {answer.body[:300]!r}"
    if answer.status != status:
        return f"{said}, not {status}"
    if name in DIFFERENCES:
        expected = "application/json" if name in IN_OUR_SHAPE else JSON if status == 200 else TEXT
        same = status == 200 or answer.content_type == expected
        return None if why and same and b"Traceback" not in answer.body else said
    if answer.content_type != recorded["content_type"]:
        return f"{said}, not {recorded['content_type']}"
    if recorded.get("allow") != answer.allow:
        return f"{said} allows {answer.allow}"
    return _body_problem(recorded, answer, said)


def _body_problem(recorded: dict[str, Any], answer: Answer, said: str) -> str | None:
    if "keys" in recorded and list(json.loads(answer.body)) != recorded["keys"]:
        return f"{said}: other keys"
    if "keys_of_items" in recorded:
        rows = json.loads(answer.body)
        if any(list(row) != recorded["keys_of_items"] for row in rows):
            return f"{said}: other keys"
    if "sentence" in recorded and answer.body.decode() != recorded["sentence"]:
        return f"{said}, not {recorded['sentence']!r}"
    return None


async def test_recorded_exchanges_are_answered_as_ray_answers_them(gateway: Gateway) -> None:
    replay, problems = Replay(gateway), []
    for name in EXCHANGES:
        if name == "infeasible":
            await _let_one_wait(gateway)
        answer = await replay.ask(name)
        problems += [found] if (found := problem(name, answer)) else []
    assert not problems, "\n".join(problems)
    assert set(DIFFERENCES) <= set(EXCHANGES)


async def _let_one_wait(gateway: Gateway) -> None:
    """Ray took a job that no cluster could hold; ours that waits is one for which there is no room now."""
    store = gateway.system.scheduler.store
    await gateway.system.finished("f7")
    await gateway.system.until(await gateway.system.submit("sleep 100"), JobState.RUNNING)
    await gateway.system.submit("echo hi", submission_id="inf", entrypoint_num_cpus=1)
    assert store.jobs.get("inf").state is JobState.QUEUED


def test_every_difference_has_a_reason_of_its_own_or_a_shared_one() -> None:
    assert all(why for _, why in DIFFERENCES.values())
    changed = {name for name, (status, _) in DIFFERENCES.items() if status != EXCHANGES[name]["status"]}
    in_words = {"sid-weird-2-get", "submit-101M", "dotdot"}
    assert set(DIFFERENCES) - changed == in_words | IN_OUR_SHAPE | {"get-inf-2", "pkg-99M"}


async def test_values_of_variables_are_hidden_from_pages_in_browsers(gateway: Gateway) -> None:
    replay = Replay(gateway)
    await replay.ask("submit-full")
    for name, shown in (("get-full", "value"), ("get-full-browser", "<redacted>")):
        details = json.loads((await replay.ask(name)).body)
        assert details["runtime_env"]["env_vars"] == {"K": shown}
        assert (details["metadata"], details["driver_exit_code"]) == ({"a": "b"}, 0)
