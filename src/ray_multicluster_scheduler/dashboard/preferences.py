"""How a visitor wants the pages to look: the language and the theme, each in a cookie."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.dashboard.words import preferred

LANGUAGE_COOKIE, THEME_COOKIE = "raymc-language", "raymc-theme"
#: Whether a theme is dark; None: as the system of the browser is.
THEMES: Mapping[str, bool | None] = {"auto": None, "light": False, "dark": True}


def language_of(request: HTTPConnection) -> str:
    """Return the language that was chosen, or else one that the browser prefers."""
    return preferred(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))


def dark_of(request: HTTPConnection) -> bool | None:
    """Return whether a dark page was chosen; None: nothing was."""
    return THEMES.get(request.cookies.get(THEME_COOKIE, ""))
