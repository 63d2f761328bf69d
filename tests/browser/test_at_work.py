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


def test_a_failed_job_shows_its_log_first_and_says_each_thing_once(visit: Open, server: Server) -> None:
    job = server.submit("echo almost there; exit 3", job_id="night-run", user="submiter")
    server.ask("until", submission_id=job, states=["FAILED"])
    one = visit("submit", width=400)
    one.go(f"/jobs/{job}")
    one.page.locator("[data-test=log-lines]", has_text="almost there").wait_for(timeout=PATIENCE_MS)
    one.page.locator("[data-test=job-decision]").wait_for(timeout=PATIENCE_MS)
    boxes = [one.page.locator(f"[data-test=job-{part}]") for part in ("command", "log", "facts", "decision")]
    tops = [(box.bounding_box() or {})["y"] for box in boxes]
    assert tops == sorted(tops)
    assert (one.page.locator("[data-test=log-lines]").bounding_box() or {})["y"] < 900  # the first screen
    message = one.page.locator("[data-test=job-message]").inner_text()
    assert one.text().count(message) == 1
    assert one.page.get_by_role("heading", level=1).inner_text() == "night-run"
    one.see(one.words("error_types.JOB_ENTRYPOINT_COMMAND_ERROR"))
    text, copy = one.page.locator("[data-test=job-command] > *").all()
    assert (copy.bounding_box() or {})["y"] >= sum(
        (text.bounding_box() or {})[side] for side in ("y", "height")
    )


def test_a_job_that_waits_says_first_why_and_later_what_it_prints(visit: Open, server: Server) -> None:
    first = server.submit("sleep 600", user="submiter")
    job = server.submit("echo at last", depends_on=[first], user="submiter")
    one = visit("submit")
    one.go(f"/jobs/{job}")
    first_card = one.page.locator(".job-cards > .nicegui-card >> nth=0")
    first_card.get_by_text(one.words("job.why_it_waits")).wait_for(timeout=PATIENCE_MS)
    server.ask("stop", submission_ids=[first])
    state_is(one, "FAILED")
    first_card.get_by_text(one.words("log.log"), exact=True).wait_for(timeout=PATIENCE_MS)


def test_the_way_back_from_a_job_leads_to_the_list_as_it_was(visit: Open, server: Server) -> None:
    server.submit("sleep 600", job_id="there-and-back", user="submiter")
    one = visit("submit")
    one.go("/jobs")
    one.page.locator("[data-test=filter-text]").fill("there-and")
    one.page.wait_for_url(f"{server.address}/jobs?text=there-and")
    one.page.get_by_role("link", name="there-and-back").click()
    one.page.wait_for_url(f"{server.address}/jobs/sub_*")
    one.ready()
    one.page.locator("[data-test=back]").click()
    one.page.wait_for_url(f"{server.address}/jobs?text=there-and")


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


def test_a_refusal_is_said_at_its_field_and_nothing_lies_over_the_form(visit: Open, server: Server) -> None:
    one = visit("submit")
    one.go("/submit")
    one.page.locator("[data-test=entrypoint]").fill("echo it fits now")
    cpus = one.page.locator("[data-test=cpus]")
    cpus.fill("99")
    one.page.locator("[data-test=send]").click()
    field = one.page.locator(".q-field", has=cpus)
    field.get_by_role("alert").filter(has_text="99").wait_for(timeout=PATIENCE_MS)
    one.page.locator(".plan-refused", has_text=one.words("submit.plan_refused")).wait_for(timeout=PATIENCE_MS)
    assert one.page.locator(".q-notification").count() == 0
    # The dry run refuses too; it may have answered first, and only the refused job moves the focus.
    one.page.wait_for_function("document.activeElement.getAttribute('data-test') === 'cpus'", timeout=PATIENCE_MS)
    cpus.fill("1")
    field.get_by_role("alert").wait_for(state="detached", timeout=PATIENCE_MS)
    one.page.locator("[data-test=send]").click()
    one.page.wait_for_url(f"{server.address}/jobs/sub_*")


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


def test_jobs_of_a_time_are_chosen_and_the_address_says_which(visit: Open, server: Server) -> None:
    job = server.submit("exit 3", job_id="by-time", user="submiter")
    server.ask("until", submission_id=job, states=["FAILED"])
    one = visit("submit")
    one.go("/jobs?job_id=by-time")
    one.page.locator("[data-test=time-usual]").click()
    one.page.get_by_role("option", name=one.words("times.hour")).click()
    one.page.wait_for_url(f"{server.address}/jobs?job_id=by-time&since=*")
    row_says(one, job, "FAILED")
    one.page.locator("[data-test=time-until]").fill("2020-01-01T09:00")
    one.page.locator("[data-test=no-match]").wait_for(timeout=PATIENCE_MS)
    one.page.wait_for_url(f"{server.address}/jobs?job_id=by-time&since=*&until=*")
    one.page.reload()
    one.ready()
    assert one.page.locator("[data-test=time-until]").input_value() == "2020-01-01T09:00"
    one.page.locator("[data-test=no-match]").wait_for(timeout=PATIENCE_MS)
    assert one.complaints == []


def test_the_overview_counts_what_failed_and_asks_for_a_time(visit: Open, server: Server) -> None:
    job = server.submit("exit 3", job_id="tonight", user="submiter")
    server.ask("until", submission_id=job, states=["FAILED"])
    one = visit("submit")
    one.go("/")
    failures = one.page.locator("[data-test=failures]")
    failures.get_by_text("tonight").wait_for(timeout=PATIENCE_MS)
    failures.locator("[data-test=time-usual]").click()
    one.page.get_by_role("option", name=one.words("times.own")).click()
    failures.locator("[data-test=time-until]").fill("2020-01-01T09:00")
    failures.get_by_text(one.words("overview.failures_empty_own_then")).wait_for(timeout=PATIENCE_MS)
    one.page.wait_for_url(f"{server.address}/?until=*")
    number = one.page.locator("[data-test='overview.failed']")
    one.page.wait_for_function(
        "e => Number(e.textContent) > 0", arg=number.element_handle(), timeout=PATIENCE_MS
    )
    number.click()
    one.page.wait_for_url(f"{server.address}/jobs?state=FAILED&since=*")
    one.ready()
    row_says(one, job, "FAILED")


def test_the_overview_counts_what_is_reserved(visit: Open, server: Server) -> None:
    job = server.submit("sleep 600", resource_requirements={"CPU": 2}, preferred_cluster="east")
    server.ask("until", submission_id=job, states=["RUNNING"])
    one = visit("operate")
    one.go("/")
    taken = "e => Number(e.textContent.split(' / ')[0]) >= 2"
    cpus = one.page.locator("[data-test='resources.CPU_bar']").element_handle()
    one.page.wait_for_function(taken, arg=cpus, timeout=PATIENCE_MS)
    server.ask("stop", submission_ids=[job])


def test_clusters_are_lines_of_a_table_that_open_and_sort(visit: Open, server: Server) -> None:
    one = visit("operate")
    one.go("/clusters")
    row = one.page.locator("[data-test=row-west]")
    assert (row.bounding_box() or {})["height"] < 80
    assert one.page.locator("[data-test=cluster-west]").count() == 0
    row.get_by_role("button", name="west").click()
    one.page.locator("[data-test=cluster-west] [data-test=drain]").wait_for(timeout=PATIENCE_MS)
    one.page.wait_for_url(f"{server.address}/clusters?cluster=west")
    server.ask("drain", cluster="west", reason="new disks")
    try:
        first = one.page.locator(".cluster-table tbody >> nth=0")
        first.get_by_text("new disks").first.wait_for(timeout=PATIENCE_MS)  # what gets no jobs is on top
        one.page.locator("[data-test=sort-name]").click()
        first.get_by_role("button", name="east").wait_for(timeout=PATIENCE_MS)
    finally:
        server.ask("drain", cluster="west", reason="")
    row.get_by_role("button", name="west").click()
    one.page.locator("[data-test=cluster-west]").wait_for(state="hidden", timeout=PATIENCE_MS)
    assert one.complaints == []


def test_a_row_of_the_queue_says_why_and_the_overview_leads_to_those_that_wait_for_it(
    visit: Open, server: Server
) -> None:
    first = server.submit("sleep 600")
    job = server.submit("echo later", job_id="needs-it", depends_on=[first])
    one = visit("operate")
    one.go("/")
    reason = one.words("reasons.DEPENDENCIES")
    one.page.get_by_role("row", name=reason).get_by_role("link").click()
    one.page.wait_for_url(f"{server.address}/jobs?state=QUEUED&wait_reason=DEPENDENCIES")
    one.ready()
    one.page.locator(f"[data-job='{job}']", has_text=reason).wait_for(timeout=PATIENCE_MS)
    one.page.locator("[data-test=filter-wait_reason]", has_text=reason).wait_for(timeout=PATIENCE_MS)
    server.ask("stop", submission_ids=[first])
    one.page.locator(f"[data-job='{job}']").wait_for(state="detached", timeout=PATIENCE_MS)
