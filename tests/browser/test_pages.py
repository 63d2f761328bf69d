"""Every page: it opens without a complaint, says what it is, and asks nobody but its own server."""

import pytest
from tests.browser.conftest import Open
from tests.browser.visits import ADDRESSES, JOB, Server, origin

from ray_multicluster_scheduler.dashboard.words import LANGUAGES, Words, catalogue

#: The audit trail shows actions as they are stored.
AS_STORED = {"submit", "stop", "retry", "delete"}


def words_of_others(language: str) -> set[str]:
    """Return the texts that the other language alone has."""
    mine = {texts[language] for texts in catalogue().values()}
    others = {texts[each] for texts in catalogue().values() for each in LANGUAGES if each != language}
    return others - mine - AS_STORED


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_opens_without_complaints_in_one_language(
    visit: Open, server: Server, path: str, language: str
) -> None:
    one, spec = visit(language=language), ADDRESSES[path]
    one.go(path)
    title = "the-first" if path == f"/jobs/{JOB}" else Words(language)(spec.title)  # a job by its name
    assert one.page.get_by_role("heading", level=1).inner_text() == title
    assert one.page.title() == f"{title} · raymc"
    assert one.page.locator("html").get_attribute("lang") == LANGUAGES[language]
    one.settle()
    lines = {line.strip() for line in one.text().splitlines()}
    assert lines & words_of_others(language) == set()
    assert one.complaints == []
    assert one.origins - {""} == {origin(server.address)}
