"""A list of 100,000 jobs is as usable as a short one: pages, filters in the address, an array in one row."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from benchmarks.filled import fill
from playwright.sync_api import Browser, Locator
from tests.browser.conftest import Open
from tests.browser.visits import PATIENCE_MS, Server, Visit, serving

from ray_multicluster_scheduler.dashboard.job_list_address import ROWS
from ray_multicluster_scheduler.store import open_store

JOBS = 100_000
#: More than an open row shows.
IN_ARRAY = ROWS + 10


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with many jobs that have ended, `old-1` and so on, and an array that came last."""
    directory = tmp_path_factory.mktemp("many")
    state = directory / "state"
    open_store(state).close()
    fill(state, JOBS, waiting=False)
    (database,) = state.glob("*.db")
    with closing(sqlite3.connect(database)) as connection, connection:  # not so old that they are removed
        connection.execute("UPDATE jobs SET accepted_at = :now, changed_at = :now", {"now": time.time()})
    with serving(directory, "--open") as running:
        array = [{"entrypoint": "sleep 600", "group": "sweep", "job_id": "sweep"}] * IN_ARRAY
        running.ask("submit", jobs=array)
        yield running


def row(one: Visit, job: str) -> Locator:
    return one.page.locator(f"[data-test=job][data-job='{job}']")


def shown(one: Visit) -> list[str]:
    """Return the ids in the list, from the top."""
    ids: list[str] = one.page.locator("[data-test=job]").evaluate_all("rows => rows.map(r => r.dataset.job)")
    return ids


@pytest.mark.parametrize("path", ["/", "/jobs", "/timeline", "/clusters", "/access"])
def test_a_page_opens_without_complaints(visit: Open, path: str) -> None:
    one = visit()
    one.go(path)
    one.settle()
    assert one.complaints == []


def test_older_jobs_are_a_page_further_and_the_way_back_is_the_browsers(visit: Open) -> None:
    one = visit()
    one.go("/jobs")
    row(one, f"old-{JOBS}").wait_for(timeout=PATIENCE_MS)
    newest = shown(one)
    assert len(newest) == ROWS
    one.page.locator("[data-test=older]").click()
    row(one, f"old-{JOBS - ROWS + 1}").wait_for(timeout=PATIENCE_MS)
    assert shown(one) == [f"old-{JOBS - ROWS + 1 - n}" for n in range(ROWS)]
    assert "cursor=" in one.page.url
    one.page.go_back()
    row(one, f"old-{JOBS}").wait_for(timeout=PATIENCE_MS)
    assert shown(one) == newest


def test_one_job_is_found_among_all_and_the_address_finds_it_again(visit: Open) -> None:
    one = visit()
    one.go("/jobs")
    one.page.locator("[data-test=filter-text]").fill("old-77777")
    row(one, "old-77777").wait_for(timeout=PATIENCE_MS)
    one.page.wait_for_url("**/jobs?text=old-77777")
    assert shown(one) == ["old-77777"]
    one.page.reload()
    row(one, "old-77777").wait_for(timeout=PATIENCE_MS)
    assert shown(one) == ["old-77777"]


def test_an_array_is_one_row_that_opens(visit: Open) -> None:
    one = visit()
    one.go("/jobs")
    array = one.page.locator(".jobs-group")
    array.wait_for(timeout=PATIENCE_MS)
    assert array.count() == 1
    assert str(IN_ARRAY) in array.inner_text()
    array.locator("[data-test=open]").click()
    rest = one.page.get_by_text(one.words("jobs.all_of").replace("{n}", str(IN_ARRAY)))
    rest.wait_for(timeout=PATIENCE_MS)
    assert one.page.locator(".jobs-inner[data-test=job]").count() == ROWS
    rest.click()
    one.ready()
    one.page.locator("[data-test=older]").click()
    one.page.wait_for_function(
        f"document.querySelectorAll('[data-test=job]').length === {IN_ARRAY - ROWS}", timeout=PATIENCE_MS
    )


def test_a_job_that_comes_is_on_top(visit: Open, server: Server) -> None:
    one = visit()
    one.go("/jobs")
    row(one, f"old-{JOBS}").wait_for(timeout=PATIENCE_MS)
    job = server.submit("sleep 600")
    row(one, job).wait_for(timeout=PATIENCE_MS)
    assert shown(one)[0] == job
