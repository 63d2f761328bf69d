"""Every page can be used by everybody: in both themes and languages, on a telephone, with the keyboard."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, JOB, PATIENCE_MS, Server, Visit

from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.model.states import JobState

NARROW = 400
#: Boxes that scroll sideways, without those that show lines as they were written.
CUT_OFF = """[...document.querySelectorAll('.raymc-main *:not(.copy-text):not(.log-box)')]
  .filter(e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX))
  .filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.className)"""


@pytest.fixture(autouse=True, scope="module")
def some_jobs(server: Server) -> None:
    """Have something to look at: jobs that wait, run, have failed; an array."""
    server.submit("exit 3", job_id="it-broke", user="reader")
    server.submit("sleep 1", job_id="later", depends_on=[JOB])
    server.ask("submit", jobs=[{"entrypoint": "sleep 600", "group": "sweep", "job_id": "sweep"}] * 3)


def serious(one: Visit) -> list[str]:
    """Return what axe-core finds that keeps people from using a page."""
    found = Axe().run(one.page).response["violations"]
    return [
        f"{each['id']}: {node['target']} {node['html'][:200]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


def settled(one: Visit, path: str) -> None:
    one.go(path)
    one.settle()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", ADDRESSES)
def test_nothing_keeps_people_from_using_a_page(visit: Open, path: str, theme: str) -> None:
    one = visit(theme=theme)
    settled(one, path)
    assert one.page.locator(f"body.body--{theme}").count() == 1
    assert serious(one) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_keeps_people_from_logging_in(visit: Open, theme: str) -> None:
    one = visit(role=None)
    one.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    one.page.goto(f"{one.server.address}/login?again=1")
    assert serious(one) == []


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_page_fits_a_telephone(visit: Open, path: str) -> None:
    one = visit(width=NARROW)
    settled(one, path)
    assert one.page.evaluate("document.documentElement.scrollWidth") <= NARROW
    assert one.page.evaluate(CUT_OFF) == []
    assert serious(one) == []


def test_all_pages_and_buttons_of_the_frame_are_reached_with_the_keyboard(visit: Open) -> None:
    one = visit()
    one.go("/")
    reached = set()
    for _ in range(30):
        one.page.keyboard.press("Tab")
        reached.add(
            one.page.evaluate(
                "(e => e.getAttribute('href') || e.getAttribute('aria-label') || e.tagName)"
                "(document.activeElement)"
            )
        )
    t = one.words
    buttons = {t("frame.language"), t("frame.theme"), t("frame.visitor")}
    pages = {path for path in ADDRESSES if not path.startswith("/jobs/")}
    assert reached >= pages | buttons


def test_a_job_is_stopped_with_the_keyboard_alone(visit: Open, server: Server) -> None:
    job = server.submit("sleep 600", job_id="keys")
    server.ask("until", submission_id=job, states=["RUNNING", "QUEUED"])
    one = visit("operate")
    one.go(f"/jobs/{job}")
    one.page.locator("[data-test=job-stop]").focus()
    one.page.keyboard.press("Enter")
    one.page.locator("[data-test=confirm]").wait_for(timeout=PATIENCE_MS)
    for _ in range(5):
        if one.page.evaluate("document.activeElement.closest('[data-test=confirm]') !== null"):
            break
        one.page.keyboard.press("Tab")
    one.page.keyboard.press("Enter")
    stopped = one.words("states.STOPPED")
    one.page.locator("[data-test=job-state]", has_text=stopped).wait_for(timeout=PATIENCE_MS)


def test_language_and_theme_are_chosen_in_the_frame_and_stay(visit: Open) -> None:
    one = visit()
    one.go("/")
    one.page.get_by_role("button", name=one.words("frame.language")).click()
    one.page.get_by_text("中文").click()
    heading = one.page.get_by_role("heading", level=1, name=Words("zh")("overview.title"))
    heading.wait_for(timeout=PATIENCE_MS)
    one.ready()
    one.page.get_by_role("button", name=Words("zh")("frame.theme")).click()
    one.page.get_by_text(Words("zh")("frame.theme_dark")).click()
    one.page.locator("body.body--dark").wait_for(timeout=PATIENCE_MS)
    one.go("/jobs")
    assert one.page.get_by_role("heading", level=1).inner_text() == Words("zh")("jobs.title")
    assert one.page.locator("body.body--dark").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_a_choice_a_page_looks_as_the_system_does(visit: Open, scheme: str) -> None:
    one = visit(theme="auto")
    one.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    one.go("/")
    one.page.locator(f"body.body--{scheme}").wait_for(timeout=PATIENCE_MS)


def test_states_are_written_and_not_only_coloured(visit: Open, server: Server) -> None:
    one = visit()
    one.go("/jobs")
    known = {one.words(f"states.{state.value}") for state in JobState}
    for text in one.page.locator(".state").all_inner_texts():
        assert text.lower().lstrip("0123456789 ") in known


def luminance(colour: str) -> float:
    """Return how bright a colour is, as WCAG reckons it."""
    shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_went_wrong_can_be_read_and_closed_and_goes_away(visit: Open, theme: str) -> None:
    one = visit(theme=theme)
    one.go("/jobs")
    one.page.evaluate(
        "history.pushState({}, '', '/jobs?state=NONSENSE'); dispatchEvent(new Event('popstate'))"
    )
    said = one.page.locator(".q-notification", has_text="NONSENSE")
    said.wait_for(timeout=PATIENCE_MS)
    close = said.get_by_role("button", name=one.words("common.close"))
    ground = said.evaluate("e => getComputedStyle(e).backgroundColor")
    for text in (said.locator(".q-notification__message"), close):
        assert contrast(text.evaluate("e => getComputedStyle(e).color"), ground) >= 4.5
    assert (said.bounding_box() or {})["y"] < 100, "it lies over what is below the title"
    if theme == "dark":
        close.click()
    else:
        assert serious(one) == []
    said.wait_for(state="detached", timeout=PATIENCE_MS)
