"""The page about the dashboard: its pages, roles, cookies, policy and example are those of the code."""

import re
from pathlib import Path

import pytest
from tests.support.pages import DOCS, ROOT, blocks, table

from ray_multicluster_scheduler.dashboard import mount
from ray_multicluster_scheduler.dashboard.frame import LANGUAGE_COOKIE, THEME_COOKIE
from ray_multicluster_scheduler.dashboard.mount import PAGES
from ray_multicluster_scheduler.server.authentication import COOKIE
from ray_multicluster_scheduler.server.ray_route import COOKIE_S

ENGLISH, CHINESE = DOCS / "dashboard.md", DOCS / "dashboard.zh-CN.md"
TABLES = {
    ENGLISH: ("page", "path", "role", "it answers"),
    CHINESE: ("页面", "路径", "角色", "回答的问题"),
}
POLICIES = {ENGLISH: ("in the policy", "means"), CHINESE: ("策略中的内容", "含义")}
MOST_PICTURE_BYTES = 200_000

each_page = pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=lambda page: page.name)


@each_page
def test_every_page_is_listed_with_its_role(page: Path) -> None:
    _, path, role, answers = TABLES[page]
    rows = table(page, *TABLES[page])
    assert [(row[path].strip("`"), row[role].strip("`")) for row in rows] == [
        (spec.path, spec.role.word) for spec in PAGES
    ]
    assert all(row[answers] for row in rows)


@each_page
def test_every_directive_of_the_policy_is_explained(page: Path) -> None:
    shown, means = POLICIES[page]
    rows = table(page, shown, means)
    explained = {part.split()[0] for row in rows for part in row[shown].strip("`").split("; ")}
    assert explained == {part.split()[0] for part in mount.POLICY.split("; ")}
    assert all(row[means] for row in rows)


@each_page
def test_cookies_are_named(page: Path) -> None:
    text = page.read_text()
    assert {COOKIE, LANGUAGE_COOKIE, THEME_COOKIE} <= set(re.findall(r"`([\w-]+)`", text))
    days = re.search(r"(\d+) (?:days|天)", text)
    assert days is not None
    assert int(days[1]) * 86400 == COOKIE_S


@each_page
def test_the_example_of_nginx_is_that_of_the_files(page: Path) -> None:
    (example,) = blocks("nginx", pages=[page])
    file = (ROOT / "deploy" / "nginx" / "raymc.conf").read_text()
    assert [line for line in example.text.splitlines() if line not in file] == []


@pytest.mark.parametrize("picture", sorted(DOCS.glob("images/dashboard-*.png")), ids=lambda path: path.name)
def test_a_picture_is_small_and_shown(picture: Path) -> None:
    assert picture.stat().st_size < MOST_PICTURE_BYTES
    assert any(f"images/{picture.name})" in page.read_text() for page in (ENGLISH, CHINESE))
