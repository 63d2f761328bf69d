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
    parts = [part.split() for part in answer.headers["content-security-policy"].split(";")]
    policy = {name: set(sources) for name, *sources in parts}
    for name in ("default-src", "frame-ancestors", "base-uri"):
        assert policy[name] == {"'none'"}
    assert policy["form-action"] == {"'self'"}
    assert "'unsafe-inline'" not in policy.get("script-src", ())
    sources = {each for found in policy.values() for each in found if not each.startswith("'nonce-")}
    assert sources <= {"'none'", "'self'", "data:", "'unsafe-eval'", "'unsafe-inline'"}
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
        "const script = document.createElement('script'); script.textContent = 'window.ran = 1'; "
        "document.body.append(script)",
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
