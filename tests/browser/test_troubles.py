"""Pages say what is wrong, or that there is nothing yet."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, JOB, Server, serving

BARE = [path for path in ADDRESSES if path != f"/jobs/{JOB}"]


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without jobs and tokens, with a cluster that does not answer."""
    with serving(tmp_path_factory.mktemp("troubles"), "--open") as running:
        running.ask("go_dark", cluster="east")
        running.ask("until_health", cluster="east", health="UNHEALTHY")
        yield running


@pytest.mark.parametrize("path", BARE)
def test_a_page_opens_without_jobs_and_with_a_cluster_that_is_down(visit: Open, path: str) -> None:
    one = visit()
    one.go(path)
    one.settle()
    assert one.complaints == []


def test_who_needs_no_token_is_not_asked_for_one(visit: Open) -> None:
    one = visit()
    one.page.goto(f"{one.server.address}/login?again=1&next=%2Fjobs")
    assert one.page.url == f"{one.server.address}/jobs"


@pytest.mark.parametrize("path", ["/", "/clusters"])
def test_a_cluster_that_is_down_is_named_with_the_reason(visit: Open, path: str) -> None:
    one = visit()
    one.go(path)
    one.see("east")
    one.see(one.words("health.UNHEALTHY"))


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/", "overview.failures_empty"),
        ("/", "overview.queue_empty"),
        ("/jobs", "jobs.none_yet"),
        ("/timeline", "timeline.empty"),
    ],
)
def test_an_empty_store_is_said(visit: Open, path: str, key: str) -> None:
    one = visit()
    one.go(path)
    one.see(one.words(key))


def test_an_unknown_job_and_an_unknown_page_are_said(visit: Open) -> None:
    one = visit()
    one.go("/jobs/no-such-job", status=404)
    one.see(one.words("frame.problem"))
    answer = one.context.request.get(f"{one.server.address}/no/such/page", headers={"Accept": "*/*"})
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    one.page.goto(f"{one.server.address}/no/such/page")
    one.page.get_by_role("link", name="Start page").click()
    one.page.wait_for_url(f"{one.server.address}/")


@pytest.mark.parametrize("query", ["state=NONSENSE", "limit=x", "cursor=x", "text=%00", "since=never"])
def test_a_wrong_address_is_no_crash(visit: Open, query: str) -> None:
    one = visit()
    one.go(f"/jobs?{query}", status=None)
    assert "Internal Server Error" not in one.text()
