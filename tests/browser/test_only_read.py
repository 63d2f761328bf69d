"""Who may only read cannot change anything, by whatever request a browser can send."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, JOB, Server, serving
from tests.integration.test_door_routes import VALUES
from tests.support.door import Asked, routes

from ray_multicluster_scheduler.server.app import routes_alone
from ray_multicluster_scheduler.service.caller import Role

#: What somebody would send to act on the job: enough for every route that takes a body.
BODY: dict[str, Any] = {
    "entrypoint": "true",
    "submission_ids": [JOB],
    "jobs": [{"entrypoint": "true"}],
    "job": {"entrypoint": "true"},
    "indices": "0-1",
    "user": "eve",
    "role": "admin",
    "reason": "x",
}
CHANGING = [each for each in routes(routes_alone()) if each.method not in {"GET", "HEAD", "WEBSOCKET"}]
#: All that a page could send: each listener of each element, with what somebody might have typed or chosen.
REPLAY = """async (values) => {
  let sent = 0;
  for (const [id, element] of Object.entries(mounted_app.elements)) {
    for (const listener of element.events || []) {
      for (const value of values) {
        const listener_id = listener.listener_id;
        window.socket.emit("event", {id: Number(id), client_id: window.clientId, listener_id, args: [value]});
        sent += 1;
      }
    }
  }
  return sent;
}"""


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that logs what is wrong with forged events."""
    with serving(tmp_path_factory.mktemp("forged"), may_complain=True) as running:
        running.submit(submission_id=JOB, user="reader")
        running.ask("until", submission_id=JOB, states=["RUNNING"])
        yield running


def _path(asked: Asked) -> str:
    path = asked.path
    for name, value in {**VALUES, "submission_id": JOB, "job_id": JOB, "name": "east"}.items():
        path = path.replace("{" + name + "}", value)
    return path


def test_no_route_changes_anything_for_a_reader(visit: Open, server: Server) -> None:
    before, one = server.ask("changed"), visit("read")
    for asked in CHANGING:
        answer = one.context.request.fetch(
            server.address + _path(asked),
            method=asked.method,
            data=json.dumps(BODY),
            headers={"Content-Type": "application/json", "Origin": server.address},
            max_redirects=0,
        )
        if asked.role is not None and not Role.READ.includes(asked.role):
            # 405: Ray refuses browsers altogether
            assert answer.status in {403, 405}, f"{asked.method} {asked.path}: {answer.text()}"
        assert server.ask("changed") == before, asked


@pytest.mark.parametrize("path", ADDRESSES)
def test_no_event_of_a_page_changes_anything_for_a_reader(visit: Open, server: Server, path: str) -> None:
    one = visit("read")
    one.go(path, status=200 if Role.READ.includes(ADDRESSES[path].role) else 403)
    before = server.ask("changed")
    bulk = {"action": "stop", "jobs": [JOB], "heads": [JOB]}
    values = [json.dumps(each) for each in ("x", 1, True, JOB, [JOB], {"submission_id": JOB}, bulk, None)]
    assert one.page.evaluate(REPLAY, values) > 0
    one.settle()
    one.page.evaluate("new Promise(done => window.socket.emit('handshake', {client_id: ''}, done))")
    assert server.ask("changed") == before


@pytest.mark.parametrize(
    "path", [path for path, spec in ADDRESSES.items() if not Role.READ.includes(spec.role)]
)
def test_a_page_for_another_role_says_so_and_shows_nothing_else(visit: Open, path: str) -> None:
    one = visit("read")
    one.go(path, status=403)
    one.see(one.words("frame.problem"))
    assert ADDRESSES[path].role.word in one.page.locator(".raymc-main").inner_text()
    assert one.page.locator(".raymc-main").locator("input, button, textarea, table").count() == 0
