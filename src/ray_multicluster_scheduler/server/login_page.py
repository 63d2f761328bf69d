"""`/login` and `/logout` of the dashboard: a token becomes a cookie that no script and no other site can use.

A plain page, without scripts: nobody gets any part of the dashboard before the token is known.
"""

from __future__ import annotations

from html import escape
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from ray_multicluster_scheduler.dashboard.addresses import LOGIN, LOGOUT
from ray_multicluster_scheduler.dashboard.frame import dark_of, language_of
from ray_multicluster_scheduler.dashboard.live import Live
from ray_multicluster_scheduler.dashboard.mount import Dashboard, add_dashboard
from ray_multicluster_scheduler.dashboard.words import LANGUAGES, Words
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.authentication import COOKIE, address_of, shown_credential
from ray_multicluster_scheduler.server.ray_route import is_known_token, keep_token
from ray_multicluster_scheduler.service.auth import Callers

#: Says in the address that the page has loaded itself again.
AGAIN = "again"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 24rem; margin: 12vh auto; padding: 0 1rem;
color: light-dark(#161b26, #e8ecf3); background: light-dark(#fff, #12161d); }
input, button { font: inherit; width: 100%; box-sizing: border-box; padding: .55rem; border-radius: .5rem; }
input { border: 1px solid #7a8496; margin: .3rem 0 1rem; background: light-dark(#fff, #1a1f29);
color: inherit; }
button { border: 0; background: #1d4ed8; color: #fff; font-weight: 600; cursor: pointer; }
[role=alert] { color: light-dark(#b91c1c, #ffc0c0); }
code { font-family: ui-monospace, monospace; white-space: nowrap; }
:focus-visible { outline: 2px solid light-dark(#1d4ed8, #8fb4ff); outline-offset: 2px; }
"""
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)

_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}

router = APIRouter(include_in_schema=False)


@router.get(LOGIN)
async def login_page(request: Request) -> Response:
    """Ask for a token, unless this server wants none or the browser has one.

    A browser that follows a link from elsewhere does not send the cookie. So this page first loads itself
    again: then it is a page of this server that asks, and the cookie comes along if there is one.
    """
    callers = cast(Callers, request.app.state.callers)
    shown = shown_credential(request.headers)
    if await callers.identify_again(shown, address_of(request.scope)) is not None:
        return _to(_next_of(request))
    if AGAIN not in request.query_params:
        return _load_again(request)
    return _page(request, problem=None)


@router.post(LOGIN)
async def log_in(request: Request) -> Response:
    """Check a token; go on to the page that was asked for first."""
    given = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
    if not await is_known_token(request, given):
        return _page(request, problem="login.wrong")
    answer = _to(_next_of(request))
    keep_token(request, answer, given)
    return answer


@router.post(LOGOUT)
def log_out() -> Response:
    """Forget the token in this browser. The token itself stays valid."""
    answer = _to(LOGIN)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def to_login(scope: Scope) -> Response | None:
    """Return where a browser goes that asks for a page without a token; None: it does not want a page."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith(("/api/", "/_")):
        return None
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    if not any(b"text/html" in value for value in accepted):
        return None
    query = scope["query_string"].decode("latin-1")
    asked = scope["path"] + (f"?{query}" if query else "")
    return _to(f"{LOGIN}?next={quote(asked, safe='')}")


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


def _next_of(request: Request) -> str:
    """Return the page to go on to: only one of this server."""
    asked = request.query_params.get("next", "/")
    # A browser takes `//host` and `/\\host` for another server, and drops tabs and line ends within.
    ours = asked.startswith("/") and not asked[1:].startswith(("/", "\\")) and asked.isprintable()
    return asked if ours else "/"


def _load_again(request: Request) -> HTMLResponse:
    target = escape(f"{LOGIN}?{AGAIN}=1&next={quote(_next_of(request), safe='')}")
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>raymc</title>'
        f'<meta http-equiv="refresh" content="0; url={target}"></head>'
        f'<body><a href="{target}">raymc</a></body></html>',
        headers=_HEADERS,
    )


def _page(request: Request, *, problem: str | None) -> HTMLResponse:
    t = Words(language_of(request))
    schemes = {None: "light dark", False: "light", True: "dark"}[dark_of(request)]
    alert = "" if problem is None else f'<p role="alert">{escape(t(problem))}</p>'
    target = f"{LOGIN}?{AGAIN}=1&next={quote(_next_of(request), safe='')}"
    return HTMLResponse(
        f'<!doctype html><html lang="{LANGUAGES[t.language]}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(t('login.title'))} · raymc</title>"
        f"<style>:root {{ color-scheme: {schemes} }}{_STYLE}</style></head><body><main><h1>raymc</h1>{alert}"
        f'<form method="post" action="{escape(target)}"><label for="token">{escape(t("login.token"))}</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
        f"<button>{escape(t('login.go'))}</button></form><p>{escape(t('login.help'))} "
        "<code>raymc token create</code></p></main></body></html>",
        HTTPStatus.OK if problem is None else HTTPStatus.FORBIDDEN,
        headers=_HEADERS,
    )


# The dashboard on this server's application: the pages, and how their visitors log in.


#: For `Door`: whoever comes with a browser and without a token is asked for one.
LOGIN_OPTIONS: dict[str, Any] = {
    "public": (LOGIN, LOGOUT),
    "instead": to_login,
}


def add_pages(app: FastAPI, scheduler: Scheduler) -> Dashboard:
    """Add the pages behind all routes there are, and return what has to run with them."""
    app.include_router(router)
    dashboard = Dashboard(
        callers=app.state.callers,
        # Not the method itself: a new configuration makes a new service.
        service_for=lambda caller: scheduler.service.as_caller(caller),  # noqa: PLW0108
        live=Live(lambda: scheduler.service),
        shown=lambda request: shown_credential(request.headers),
        reload=lambda caller: scheduler.reload(by=caller),
    )
    add_dashboard(app, dashboard)
    return dashboard
