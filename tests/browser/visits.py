"""How tests start a server and visit its pages."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.dashboard.mount import PAGES
from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.server.authentication import COOKIE
from ray_multicluster_scheduler.service.caller import Role

ROOT = Path(__file__).parents[2]
#: A job that every page can be asked for.
JOB = "first"
#: How long to wait for what has to come, in milliseconds. Only a failing test waits that long.
PATIENCE_MS = int(1000 * PATIENCE_S)
#: All pages by the path to ask for. A page that is added later is among them.
ADDRESSES = {spec.path.format(submission_id=JOB): spec for spec in PAGES}


@dataclass(kw_only=True)
class Server:
    """A server in its own process."""

    address: str
    #: For each role a token: its `id` and its `secret`.
    tokens: dict[str, dict[str, str]]
    process: subprocess.Popen[str]

    def ask(self, command: str, **arguments: Any) -> Any:
        """Let `World` do something, and return what it says."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the server has ended while it was asked to {command}"
        return json.loads(line)

    def submit(self, entrypoint: str = "sleep 600", **job: Any) -> str:
        """Accept a job."""
        ids: list[str] = self.ask("submit", jobs=[{"entrypoint": entrypoint, **job}])
        return ids[0]

    def secret(self, role: str) -> str:
        """Return the token of the user with this role."""
        return self.tokens[role]["secret"]


@contextmanager
def serving(directory: Path, *options: str, may_complain: bool = False) -> Iterator[Server]:
    """Run a server; without leave it must not log any traceback."""
    log = directory / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.browser.world", str(directory), *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            yield Server(process=process, **json.loads(line))
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            finally:
                process.kill()
    assert may_complain or "Traceback" not in log.read_text(), log.read_text()


@dataclass(kw_only=True)
class Visit:
    """A browser of one visitor, with all that it has asked for and complained about."""

    server: Server
    context: BrowserContext
    page: Page
    words: Words
    complaints: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)

    def go(self, path: str, *, status: int | None = 200) -> None:
        """Open a page, and wait until it hears of changes."""
        answer = self.page.goto(self.server.address + path, wait_until="commit")
        assert answer is not None
        assert status is None or answer.status == status, answer.text()[:2000]
        self.ready()

    def ready(self) -> None:
        """Wait until the page has its connection and what it shows."""
        self.page.wait_for_function("window.did_handshake === true", timeout=PATIENCE_MS)
        self.page.locator(".raymc-main [role=heading]").first.wait_for(timeout=PATIENCE_MS)

    def settle(self) -> None:
        """Wait until the browser has nothing to do, and no button says that something is under way."""
        self.page.wait_for_load_state("load")
        self.page.wait_for_function("!document.querySelector('.q-btn .q-spinner')", timeout=PATIENCE_MS)
        self.page.evaluate("new Promise(done => requestIdleCallback(done, {timeout: 2000}))")

    def text(self) -> str:
        """Return all that can be read on the page."""
        return self.page.locator("body").inner_text()

    def see(self, text: str) -> None:
        """Wait until this text is visible somewhere."""
        self.page.get_by_text(text).locator("visible=true").first.wait_for(timeout=PATIENCE_MS)


@contextmanager
def visiting(
    browser: Browser,
    server: Server,
    *,
    role: str | None = "admin",
    token: str | None = None,
    language: str = "en",
    theme: str = "light",
    width: int = 1280,
) -> Iterator[Visit]:
    """Open a fresh browser for somebody with a role, or with this token."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        ignore_https_errors=True,
        reduced_motion="reduce",  # colours are not measured while they change
    )
    shown = token or (server.secret(role) if role is not None and server.tokens else None)
    cookies = {"raymc-language": language, "raymc-theme": theme, **({COOKIE: shown} if shown else {})}
    context.add_cookies(
        [
            {"name": name, "value": value, "url": server.address, "httpOnly": name == COOKIE}
            for name, value in cookies.items()
        ]
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    visit = Visit(server=server, context=context, page=page, words=Words(language))
    page.on("console", lambda message: _note(visit, message.type, message.text))
    page.on("pageerror", lambda error: visit.complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (visit.complaints.append("a dialog"), dialog.dismiss()))
    context.on("request", lambda request: visit.origins.add(origin(request.url)))
    try:
        yield visit
    finally:
        context.close()


def _note(visit: Visit, kind: str, text: str) -> None:
    if kind in {"error", "warning"}:
        visit.complaints.append(f"{kind}: {text}")


def origin(url: str) -> str:
    """Return who is asked; what a page has made itself (`data:`, `blob:`) asks nobody."""
    parts = urlsplit(url)
    if parts.scheme in {"data", "blob"}:
        return ""
    return f"{parts.scheme}://{parts.netloc}".replace("ws", "http", 1)


def allowed(role: str) -> dict[str, Any]:
    """Return the pages that a role may see."""
    return {path: spec for path, spec in ADDRESSES.items() if Role.named(role).includes(spec.role)}
