"""Takes pictures of all pages of a running dashboard, such as that of `make demo-ui`.

`python -m tests.browser.screenshots http://127.0.0.1:PORT FOLDER` takes every page in both languages, light
and dark, wide and narrow, and says which of them scroll sideways or have errors in the console. With `--docs`
it takes only the pictures of the documentation; FOLDER is then `docs/images`.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from ray_multicluster_scheduler.dashboard.addresses import LOGIN
from ray_multicluster_scheduler.server.authentication import COOKIE

LANGUAGES, THEMES, WIDTHS = ("en", "zh"), ("light", "dark"), (1280, 400)
HEIGHT = 900
#: A page is ready when its websocket is; then charts take a moment to be drawn.
READY = "() => window.did_handshake === true"
SETTLE_MS = 2500
#: Which pages the documentation shows, and in which languages.
IN_DOCS = {"overview": LANGUAGES, "jobs": ("en",), "job": LANGUAGES, "timeline": ("en",), "clusters": ("en",)}
#: Where the documentation shows a page otherwise than it opens: the demo is not an hour old.
AS_IN_DOCS = {"timeline": "/timeline?window=900"}
DOCS_HEIGHTS = {"job": 1350, "timeline": 740}
DOCS_COLOURS = 128
CHROMIUM = Path("/usr/bin/chromium")


def main() -> int:
    """Take the pictures; the exit code is 1 if something is wrong with a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", help="of a server with a dashboard")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--token", help="of an administrator, where the server wants one")
    parser.add_argument("--docs", action="store_true", help="only the pictures of the documentation")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="only pictures with such names: '*-en-light-1280'"
    )
    options = parser.parse_args()
    camera = Camera(options.address.rstrip("/"), options.folder, options.token)
    options.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        installed = {"executable_path": str(CHROMIUM)} if CHROMIUM.exists() else {}
        browser = playwright.chromium.launch(args=["--no-sandbox", "--disable-gpu"], **installed)
        problems = camera.for_docs(browser) if options.docs else camera.all(browser, options.only)
        browser.close()
    print(*problems or ["nothing is wrong"], sep="\n")
    return 1 if problems else 0


class Camera:
    """Takes pictures of the pages of one server."""

    def __init__(self, address: str, folder: Path, token: str | None) -> None:
        self._address = address
        self._folder = folder
        self._token = token

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yield each page by the name of its picture: of the jobs, one with attempts and one that waits."""
        jobs = self._jobs()
        tried = [job for job in jobs if job["attempt"] > 1]
        tried.sort(key=lambda job: bool(job["state"] != "SUCCEEDED"))
        waiting = [job for job in jobs if job["state"] == "QUEUED"]
        for name, found in (("job-waiting", waiting), ("job", tried or jobs)):
            if found:
                yield name, f"/jobs/{urllib.parse.quote(found[0]['submission_id'], safe='')}"
        yield from (("overview", "/"), ("jobs", "/jobs"), ("timeline", "/timeline"), ("submit", "/submit"))
        yield from (("clusters", "/clusters"), ("processes", "/processes"), ("access", "/access"))
        yield "job-gone", "/jobs/nosuchjob"

    def all(self, browser: Browser, pattern: str) -> list[str]:
        """Take every page in every way that the pattern allows; returns what is wrong."""
        problems: list[str] = []
        for language, theme, width in product(LANGUAGES, THEMES, WIDTHS):
            context = self._context(browser, language, theme, width, token=self._token)
            for name, path in self.paths():  # anew each time: a job does not wait for ever
                picture = f"{name}-{language}-{theme}-{width}"
                if fnmatch(picture, pattern):
                    problems += self._take(context, path, picture, whole=True)
            context.close()
            problems += self._login(browser, language, theme, width, pattern)
        return problems

    def _login(self, browser: Browser, language: str, theme: str, width: int, pattern: str) -> list[str]:
        """Take the page that asks for a token, where the server wants one."""
        picture = f"login-{language}-{theme}-{width}"
        if self._token is None or not fnmatch(picture, pattern):
            return []
        context = self._context(browser, language, theme, width, token=None)
        problems = self._take(context, LOGIN, picture, whole=True)
        context.close()
        return problems

    def for_docs(self, browser: Browser) -> list[str]:
        """Take the pictures of the documentation: what a screen shows, in few colours."""
        problems: list[str] = []
        paths = dict(self.paths())
        for name, languages in IN_DOCS.items():
            for language in languages:
                height = DOCS_HEIGHTS.get(name, HEIGHT)
                context = self._context(
                    browser, language, "light", WIDTHS[0], token=self._token, height=height
                )
                picture = f"dashboard-{name}" + ("" if language == "en" else ".zh-CN")
                problems += self._take(context, AS_IN_DOCS.get(name, paths[name]), picture, whole=False)
                context.close()
                _compress(self._folder / f"{picture}.png")
        return problems

    def _take(self, context: BrowserContext, path: str, picture: str, *, whole: bool) -> list[str]:
        page, problems = context.new_page(), []

        def note(message: ConsoleMessage) -> None:
            if message.type == "error" and "404" not in message.text:
                problems.append(f"{picture}: the console says {message.text[:300]}")

        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(f"{picture}: {str(error)[:300]}"))
        page.goto(self._address + path)
        if path != LOGIN:
            page.wait_for_function(READY)
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=self._folder / f"{picture}.png", full_page=whole)
        problems += _too_wide(page, picture)
        page.close()
        return problems

    def _context(
        self,
        browser: Browser,
        language: str,
        theme: str,
        width: int,
        *,
        token: str | None,
        height: int = HEIGHT,
    ) -> BrowserContext:
        context = browser.new_context(viewport={"width": width, "height": height})
        cookies = {"raymc-language": language, "raymc-theme": theme}
        if token:
            cookies[COOKIE] = token
        context.add_cookies(
            [{"name": name, "value": value, "url": self._address} for name, value in cookies.items()]
        )
        return context

    def _jobs(self) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(f"{self._address}/api/v1/jobs?limit=1000", headers=headers)
        with urllib.request.urlopen(request) as answer:
            found: list[dict[str, Any]] = json.load(answer)["jobs"]
        return found


def _too_wide(page: Page, picture: str) -> list[str]:
    needed, given = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return [f"{picture}: the page scrolls sideways ({needed} of {given} pixels)"] if needed > given else []


def _compress(path: Path) -> None:
    """Write a picture again with few colours, which a page of flat areas does not miss."""
    Image.open(path).convert("RGB").quantize(DOCS_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
