"""What a browser may do with the pages: nothing from elsewhere, no frames, no scripts but their own."""

import pytest
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, Server, Visit


@pytest.fixture
def one(visit: Open) -> Visit:
    return visit("admin")


@pytest.mark.parametrize("path", [*ADDRESSES, "/jobs/no-such-job", "/login"])
def test_a_page_has_a_policy_and_may_not_be_framed(one: Visit, path: str) -> None:
    answer = one.context.request.get(one.server.address + path, headers={"Accept": "text/html"})
    policy = dict(
        (part.strip().partition(" ")[0], part.strip().partition(" ")[2])
        for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "'unsafe-inline'" not in policy.get("script-src", "")
    for sources in policy.values():
        assert set(sources.split()) <= {"'none'", "'self'", "data:", "'unsafe-eval'", "'unsafe-inline'"} | {
            each for each in sources.split() if each.startswith("'nonce-")
        }
    assert answer.headers["cache-control"] == "no-store"


def test_each_answer_has_another_nonce(one: Visit) -> None:
    found = {
        one.context.request.get(f"{one.server.address}/").headers["content-security-policy"] for _ in range(3)
    }
    assert len(found) == 3


def test_a_frame_of_a_page_stays_empty(one: Visit, server: Server) -> None:
    frame = f'<iframe src="{server.address}/"></iframe>'
    one.page.route(
        "http://frame.localhost/", lambda route: route.fulfill(body=frame, content_type="text/html")
    )
    one.page.goto("http://frame.localhost/", wait_until="load")
    (framed,) = one.page.main_frame.child_frames
    assert framed.url == "chrome-error://chromewebdata/"


@pytest.mark.parametrize(
    "code",
    [
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))",
        "document.body.insertAdjacentHTML('beforeend', '<img src=/x onerror=\"window.ran = 1\">')",
        "document.body.insertAdjacentHTML('beforeend', '<iframe srcdoc=\"<script>top.ran = 1</script>\">')",
        "fetch('https://example.org/')",
        "new WebSocket('wss://example.org/')",
        "document.body.insertAdjacentHTML('beforeend', '<img src=https://example.org/x.png>')",
    ],
)
def test_what_would_get_into_a_page_runs_nothing_and_asks_nobody(one: Visit, code: str) -> None:
    one.go("/")
    with one.page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        one.page.evaluate(f"() => {{ {code} }}")
    assert one.page.evaluate("window.ran") is None
