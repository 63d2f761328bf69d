"""What happens is seen without loading a page anew, and can be acted upon."""

import pytest
from tests.browser.conftest import Open
from tests.browser.visits import PATIENCE_MS, Server, Visit


def state_is(one: Visit, state: str) -> None:
    """Wait until the page of a job says this state."""
    text = one.words(f"states.{state}")
    one.page.locator("[data-test=job-state]", has_text=text).wait_for(timeout=PATIENCE_MS)


def row_says(one: Visit, job: str, state: str) -> None:
    """Wait until the row of a job says this state."""
    row = one.page.locator(f"[data-job='{job}']", has_text=one.words(f"states.{state}"))
    row.first.wait_for(timeout=PATIENCE_MS)


def test_the_page_of_a_job_follows_it(visit: Open, server: Server) -> None:
    job = server.submit("sleep 600")
    server.ask("until", submission_id=job, states=["RUNNING"])
    one = visit("operate")
    one.go(f"/jobs/{job}")
    state_is(one, "RUNNING")
    one.page.evaluate("window.same = true")
    server.ask("stop", submission_ids=[job])
    state_is(one, "STOPPED")
    assert one.page.evaluate("window.same")
    assert one.complaints == []


def test_the_list_follows_jobs_that_come_and_go(visit: Open, server: Server) -> None:
    one = visit("operate")
    one.go("/jobs")
    one.page.evaluate("window.same = true")
    job = server.submit("sleep 600")
    row_says(one, job, "RUNNING")
    server.ask("stop", submission_ids=[job])
    row_says(one, job, "STOPPED")
    assert one.page.evaluate("window.same")


def test_the_overview_tells_what_has_failed(visit: Open, server: Server) -> None:
    one = visit("operate")
    one.go("/")
    server.submit("exit 3", job_id="it-fails")
    one.see("it-fails")


def test_a_job_is_stopped_from_its_page_after_a_question(visit: Open, server: Server) -> None:
    job = server.submit("sleep 600", user="submiter")
    server.ask("until", submission_id=job, states=["RUNNING"])
    one = visit("submit")
    one.go(f"/jobs/{job}")
    one.page.locator("[data-test=job-stop]").click()
    one.page.get_by_role("button", name=one.words("common.cancel")).click()
    one.page.locator("[data-test=job-stop]").click()
    one.page.locator("[data-test=confirm]").click()
    state_is(one, "STOPPED")
    actions = [(user, action) for user, action, target in server.ask("changed")["audit"] if job in target]
    assert ["submiter", "stop"] in [[user, action.split()[-1]] for user, action in actions]


def test_jobs_are_stopped_from_the_list(visit: Open, server: Server) -> None:
    jobs = [server.submit("sleep 600", job_id="bulk") for _ in range(2)]
    one = visit("operate")
    one.go("/jobs?job_id=bulk")
    for job in jobs:
        row_says(one, job, "RUNNING")
    one.page.locator("[data-test=pick-all]").check()
    one.page.locator("[data-test=stop]").click()
    one.page.locator("[data-test=confirm]").click()
    for job in jobs:
        row_says(one, job, "STOPPED")


def test_a_job_is_submitted_from_the_page(visit: Open, server: Server) -> None:
    one = visit("submit")
    one.go("/submit")
    one.page.locator("[data-test=entrypoint]").fill("echo hello from the page")
    one.page.locator("[data-test=plan]", has_text="west").wait_for(timeout=PATIENCE_MS)
    one.page.locator("[data-test=send]").click()
    one.page.wait_for_url(f"{server.address}/jobs/sub_*")
    one.ready()
    state_is(one, "SUCCEEDED")
    one.page.locator("[data-test=log-lines]", has_text="hello from the page").wait_for(timeout=PATIENCE_MS)
    (mine,) = (job for job in server.ask("changed")["jobs"] if job[0] in one.page.url)
    assert mine[1] == "SUCCEEDED"


def test_what_is_wrong_in_the_form_is_said_there_and_nothing_is_sent(visit: Open, server: Server) -> None:
    before = server.ask("changed")["jobs"]
    one = visit("submit")
    one.go("/submit")
    one.page.locator("[data-test=send]").click()
    one.page.get_by_role("alert").locator("visible=true").first.wait_for(timeout=PATIENCE_MS)
    assert server.ask("changed")["jobs"] == before


def test_a_log_grows_on_the_page(visit: Open, server: Server) -> None:
    job = server.submit("echo first; sleep 1; echo second; sleep 600")
    one = visit("operate")
    one.go(f"/jobs/{job}")
    one.page.locator("[data-test=log-lines]", has_text="second").wait_for(timeout=PATIENCE_MS)
    server.ask("stop", submission_ids=[job])


@pytest.mark.parametrize("role", ["operate"])
def test_a_cluster_that_goes_and_comes_back_is_seen(visit: Open, server: Server, role: str) -> None:
    one = visit(role)
    one.go("/")
    server.ask("go_dark", cluster="east")
    try:
        one.page.locator(".state-UNHEALTHY").first.wait_for(timeout=PATIENCE_MS)
    finally:
        server.ask("come_back", cluster="east")
    one.page.locator(".state-UNHEALTHY").first.wait_for(state="detached", timeout=PATIENCE_MS)
