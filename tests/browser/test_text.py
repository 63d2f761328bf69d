"""What users write stays text on every page, in every place that shows it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, Server, serving

from ray_multicluster_scheduler.service.caller import Role

SCRIPT = "<script>window.ran=1</script>"
IMAGE = "<img src=x class=hostile onerror=alert(1)>"
VUE = "{{constructor.constructor('window.ran=1')()}}"
QUOTES = "\"'`$" + "{window.ran=1} onmouseover=window.ran=1"
HOSTILE = f"{SCRIPT}{IMAGE}{VUE}"
ID = "hostile"


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server where all that can be written says the same."""
    with serving(tmp_path_factory.mktemp("hostile")) as running:
        words = {
            "job_id": HOSTILE,
            "group": f"group {HOSTILE}",
            "user": "reader",
            "metadata": {"note": HOSTILE, HOSTILE: QUOTES},
            "tags": (HOSTILE, QUOTES),
            "runtime_env": {"env_vars": {"WORDS": HOSTILE, "MORE": QUOTES}},
        }
        said = f"echo '{SCRIPT}' '{IMAGE}' '{VUE}'"
        running.submit(f"{said}; sleep 600", submission_id=ID, **words)
        failing = running.submit(f"{said}; exit 3", submission_id="failed", **words)
        running.submit("sleep 1", submission_id="waits", **words, depends_on=[ID])
        running.ask("until", submission_id=ID, states=["RUNNING"])
        running.ask("until", submission_id=failing, states=["FAILED"])
        running.ask("token", user=HOSTILE, role="read")
        running.ask("drain", cluster="west", reason=HOSTILE)
        running.ask("fail", cluster="east", words=HOSTILE)
        assert SCRIPT in running.ask("until_health", cluster="east", health="UNHEALTHY")
        yield running


@pytest.mark.parametrize("path", [*ADDRESSES, "/jobs?text=hostile", "/submit?from=hostile", "/jobs/failed"])
@pytest.mark.parametrize("role", ["read", "admin"])
def test_words_of_users_are_shown_and_never_run(visit: Open, path: str, role: str) -> None:
    spec = ADDRESSES.get(path.partition("?")[0])
    if spec is not None and not Role.named(role).includes(spec.role):
        pytest.skip("this role does not see the page")
    one = visit(role)
    one.go(path.replace("/jobs/first", f"/jobs/{ID}"))
    one.settle()
    assert one.page.locator(".hostile").count() == 0
    assert one.page.evaluate("window.ran") is None
    assert one.complaints == []


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"/jobs/{ID}", "[data-test=job-command]"),
        (f"/jobs/{ID}", "[data-test=log-lines]"),
        ("/jobs", "[data-test=jobs]"),
        ("/", ".raymc-main"),  # what has failed, and why a cluster is not healthy
    ],
)
def test_words_of_users_are_readable(visit: Open, path: str, place: str) -> None:
    one = visit("admin")
    one.go(path)
    one.page.locator(place, has_text="<script>").wait_for()
    assert one.page.locator(place, has_text=IMAGE[:20]).count() > 0
