"""What each role sees: its pages, its buttons, and whose jobs."""

import pytest
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, JOB, Server, allowed

from ray_multicluster_scheduler.service.caller import Role

ROLES = [role.word for role in Role]
#: A job of somebody whom no role but the higher ones sees.
HERS = "hers"


@pytest.fixture(autouse=True, scope="module")
def her_job(server: Server) -> None:
    server.submit(submission_id=HERS, job_id="her-own", user="ann")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_gets_its_pages_and_ways_to_them(visit: Open, role: str) -> None:
    one = visit(role)
    one.go("/")
    nav = one.page.get_by_role("navigation")
    ways = {link.get_attribute("href") for link in nav.get_by_role("link").all()}
    pages = {path for path in allowed(role) if not path.startswith("/jobs/")}
    assert {path for path in ways if path in ADDRESSES} == pages
    for path, spec in ADDRESSES.items():
        if path == f"/jobs/{JOB}" and Role.named(role) is Role.SUBMIT:
            continue  # the job of another user
        one.go(path, status=200 if Role.named(role).includes(spec.role) else 403)


@pytest.mark.parametrize("role", ROLES)
def test_only_who_may_act_on_a_job_sees_buttons_for_it(visit: Open, server: Server, role: str) -> None:
    job = server.submit(user=f"{role}er")
    one, may = visit(role), Role.named(role).includes(Role.SUBMIT)
    one.go(f"/jobs/{job}")
    assert one.page.locator("[data-test=job-stop]").count() == may
    assert one.page.locator("[data-test=job-clone]").count() == may
    one.go("/jobs")
    one.page.locator(f"[data-job={job}]").wait_for()
    assert (one.page.locator("[data-test=pick-all]").count() > 0) == may
    server.ask("stop", submission_ids=[job])


@pytest.mark.parametrize("role", ROLES)
def test_only_who_may_submit_checks_a_cluster_with_a_job(visit: Open, role: str) -> None:
    one, may = visit(role), Role.named(role).includes(Role.SUBMIT)
    one.go("/clusters?cluster=west")
    section = one.page.locator("[data-test=cluster-west]")
    section.wait_for()
    assert section.locator("[data-test=doctor]").count() == may
    if may:
        section.locator("[data-test=doctor]").click()
        one.see("python: not found")  # on this cluster


@pytest.mark.parametrize("role", ["read", "submit"])
@pytest.mark.parametrize("job", [HERS, "no-such-job"])
def test_a_job_of_another_user_is_as_unknown_as_none(visit: Open, role: str, job: str) -> None:
    one = visit(role)
    one.go(f"/jobs/{job}", status=404)
    one.see(one.words("frame.problem"))
    assert "her-own" not in one.text()
    one.go("/jobs")
    assert "her-own" not in one.text()
    one.go("/timeline")
    assert "her-own" not in one.text()


def test_an_operator_sees_everybodys_jobs(visit: Open) -> None:
    one = visit("operate")
    one.go("/jobs")
    one.see("her-own")
    one.go(f"/jobs/{HERS}")


@pytest.mark.parametrize("action", ["stop", "retry"])
def test_a_forged_selection_reaches_no_job_of_another_user(visit: Open, server: Server, action: str) -> None:
    one, before = visit("submit"), server.ask("changed")
    one.go("/jobs")
    sent = one.page.evaluate(
        """picked => {
          const elements = Object.entries(mounted_app.elements);
          const sends = (element) => element.events.some(each => each.type === "bulk");
          const [id, table] = elements.find(([, element]) => sends(element));
          const listener_id = table.events.find(each => each.type === "bulk").listener_id;
          const args = [JSON.stringify(picked)];
          window.socket.emit("event", {id: Number(id), client_id: window.clientId, listener_id, args});
          return true;
        }""",
        {"action": action, "jobs": [HERS], "heads": [HERS]},
    )
    assert sent
    one.see(one.words(f"jobs.{action}_none"))
    assert server.ask("changed") == before
