"""The site builds without a warning and without the internet, and every link leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pages import PAGES, ROOT

#: Headings become anchors as the site makes them.
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    return {
        re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
        for heading in _HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for name, anchor in _LINK.findall(page.read_text()):
        target = page.parent / name if name else page
        assert target.exists(), f"{name} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{name} has no heading #{anchor}"


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= 25
    assert [found for page in pages for found in loaded.findall(page.read_text())] == []
