"""How visitors log in and out, and what their token is kept in."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import Open
from tests.browser.visits import JOB, PATIENCE_MS, Server, Visit, serving, visiting
from tests.contract.test_ray_api_tls import write_certificate

from ray_multicluster_scheduler.dashboard.mount import PAGES
from ray_multicluster_scheduler.server.authentication import COOKIE

#: Each would lead to another server if it were followed.
FOREIGN = (
    "//example.org",
    "///example.org",
    "/\\example.org",
    "\\\\example.org",
    "https://example.org",
    "https:example.org",
    "javascript:alert(1)",
    "/\t/example.org",
    "\n//example.org",
    "example.org",
    " //example.org",
)


def is_asked(one: Visit) -> None:
    """Wait until the form is there; its page loads itself once more before."""
    one.page.get_by_label(one.words("login.token")).wait_for(timeout=PATIENCE_MS)


def enter(one: Visit, token: str) -> None:
    is_asked(one)
    one.page.get_by_label(one.words("login.token")).fill(token)
    one.page.get_by_role("button", name=one.words("login.go")).click()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_who_has_no_token_is_asked_for_one_and_then_gets_the_page(visit: Open, language: str) -> None:
    one = visit(role=None, language=language)
    one.page.goto(f"{one.server.address}/jobs?state=RUNNING")
    is_asked(one)
    assert one.page.title() == f"{one.words('login.title')} · raymc"
    enter(one, one.server.secret("read"))
    one.page.wait_for_url(f"{one.server.address}/jobs?state=RUNNING")
    one.ready()
    assert one.page.get_by_role("heading", level=1).inner_text() == one.words("jobs.title")
    assert one.complaints == []


@pytest.mark.parametrize(
    ("theme", "system", "dark"), [("dark", "light", True), ("light", "dark", False), ("auto", "dark", True)]
)
def test_the_login_looks_as_the_pages_do(visit: Open, theme: str, system: Any, dark: bool) -> None:
    one = visit(role=None, theme=theme)
    one.page.emulate_media(color_scheme=system)
    one.page.goto(f"{one.server.address}/jobs")
    is_asked(one)
    background = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 22, 29)" if dark else "rgb(255, 255, 255)")


def test_a_wrong_token_is_refused_in_words_and_leaves_no_cookie(visit: Open) -> None:
    one = visit(role=None)
    one.page.goto(f"{one.server.address}/jobs")
    enter(one, "raymc_0123456789_" + "A" * 43)
    alert = one.page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == one.words("login.wrong")
    assert COOKIE not in {each["name"] for each in one.context.cookies()}
    enter(one, one.server.secret("read"))  # another try goes on to the page that was asked for
    one.page.wait_for_url(f"{one.server.address}/jobs")


def test_a_link_from_another_site_leads_to_the_page_for_who_has_logged_in(visit: Open) -> None:
    one = visit(role="read")
    elsewhere = one.server.address.replace("127.0.0.1", "localhost") + "/docs"
    one.page.goto(elsewhere)  # another site, in the eyes of a browser
    asked = f"{one.server.address}/jobs?state=RUNNING"
    one.page.evaluate("url => { location.href = url }", asked)
    one.page.wait_for_url(asked)
    one.ready()
    assert one.page.get_by_role("heading", level=1).inner_text() == one.words("jobs.title")


@pytest.mark.parametrize("target", FOREIGN)
def test_after_the_login_a_visitor_stays_on_this_server(visit: Open, target: str) -> None:
    one = visit(role=None)
    asked = one.context.request.post(
        f"{one.server.address}/login",
        params={"next": target},
        form={"token": one.server.secret("read")},
        max_redirects=0,
    )
    assert asked.status == 303
    assert asked.headers["location"] == "/"


def test_the_cookie_is_for_this_server_and_for_no_script(visit: Open) -> None:
    one = visit(role=None)
    one.page.goto(f"{one.server.address}/")
    enter(one, one.server.secret("read"))
    one.page.wait_for_url(f"{one.server.address}/")
    (cookie,) = (each for each in one.context.cookies() if each["name"] == COOKIE)
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert COOKIE not in one.page.evaluate("document.cookie")


def test_over_tls_the_cookie_never_leaves_in_the_clear(browser: Browser, tmp_path: Path) -> None:
    write_certificate(tmp_path / "own.pem")
    with (
        serving(tmp_path, "--certificate", str(tmp_path / "own.pem")) as server,
        visiting(browser, server, role=None) as one,
    ):
        one.page.goto(f"{server.address}/")
        enter(one, server.secret("read"))
        one.page.wait_for_url(f"{server.address}/")
        one.ready()
        (cookie,) = (each for each in one.context.cookies() if each["name"] == COOKIE)
        assert cookie["secure"]


def test_who_logs_out_is_asked_for_a_token_again(visit: Open) -> None:
    one = visit("read")
    one.go("/")
    one.page.get_by_role("button", name=one.words("frame.visitor")).click()
    one.page.get_by_text(one.words("frame.log_out")).click()
    is_asked(one)
    one.page.goto(f"{one.server.address}/jobs")
    is_asked(one)
    assert one.page.url == f"{one.server.address}/login?again=1&next=%2Fjobs"


@pytest.mark.parametrize("path", [spec.path.format(submission_id=JOB) for spec in PAGES])
def test_without_a_token_no_page_is_there(visit: Open, path: str) -> None:
    one = visit(role=None)
    answer = one.context.request.get(
        one.server.address + path, headers={"Accept": "text/html"}, max_redirects=0
    )
    assert (answer.status, answer.headers["location"][:12]) == (303, "/login?next=")
    assert one.context.request.get(one.server.address + path, max_redirects=0).status == 401


def test_an_open_page_of_a_revoked_token_goes_to_the_login(visit: Open, server: Server) -> None:
    made = server.ask("token", user="gone", role="operate")
    one = visit(token=made["secret"])
    one.go("/")
    server.ask("revoke", token_id=made["id"])
    is_asked(one)


@pytest.mark.parametrize("path", ["/login", "/logout", "/api/v1/jobs/stop", "/api/v1/jobs"])
@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://127.0.0.1:1"])
def test_a_form_of_another_site_is_refused(visit: Open, server: Server, path: str, origin: str) -> None:
    before = server.ask("changed")
    answer = visit("admin").context.request.post(
        server.address + path,
        form={"token": server.secret("read"), "submission_ids": JOB},
        headers={"Origin": origin},
        max_redirects=0,
    )
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert server.ask("changed") == before
