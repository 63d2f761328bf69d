"""The pages about REST are written from the routes."""

import pytest
from tests.docs import rest_page


@pytest.mark.parametrize("name", rest_page.HEADS)
def test_the_page_is_what_the_routes_say(name: str) -> None:
    assert rest_page.paths()[name].read_text() == rest_page.page(name), "run: python -m tests.docs.rest_page"


@pytest.mark.parametrize("name", rest_page.HEADS)
def test_every_route_has_its_role(name: str) -> None:
    text = rest_page.page(name)
    sections = [each for each in text.split("\n### ") if each.startswith("`") and "/api/v1/" in each]
    assert len(sections) > 20
    role = rest_page.WORDS[name]["role"]
    for section in sections:
        assert f"({role} `" in section, section
