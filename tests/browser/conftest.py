"""A browser and a server for each module of this folder."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.browser.visits import JOB, Server, Visit, serving, visiting

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if "/tests/browser/" in str(item.path):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window, for all modules of this folder: each visitor has a context.

    While Playwright runs, no test in its thread can use asyncio: it ends with the folder.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("NOT TESTED: no browser here; install Debian's package chromium (make browser)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tokens of all roles, and one job that runs."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        running.submit(submission_id=JOB, job_id="the-first", user="reader")
        running.ask("until", submission_id=JOB, states=["RUNNING"])
        yield running


Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, server: Server) -> Iterator[Open]:
    """Open browsers of visitors; they end with the test."""
    with ExitStack() as stack:

        def opened(role: str | None = "admin", *, at: Server = server, **options: Any) -> Visit:
            return stack.enter_context(visiting(browser, at, role=role, **options))

        yield opened
