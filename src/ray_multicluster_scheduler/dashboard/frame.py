"""What every page has: the way to all other pages, a choice of language and theme, and the visitor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nicegui import ui
from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.dashboard.addresses import LOGIN, LOGOUT
from ray_multicluster_scheduler.dashboard.dialogs import heading
from ray_multicluster_scheduler.dashboard.page import Page, PageSpec
from ray_multicluster_scheduler.dashboard.words import OWN_NAMES, preferred
from ray_multicluster_scheduler.version import VERSION

# How a visitor wants the pages to look: the language and the theme, each in a cookie.


LANGUAGE_COOKIE, THEME_COOKIE = "raymc-language", "raymc-theme"
#: Whether a theme is dark; None: as the system of the browser is.
THEMES: Mapping[str, bool | None] = {"auto": None, "light": False, "dark": True}


def language_of(request: HTTPConnection) -> str:
    """Return the language that was chosen, or else one that the browser prefers."""
    return preferred(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))


def dark_of(request: HTTPConnection) -> bool | None:
    """Return whether a dark page was chosen; None: nothing was."""
    return THEMES.get(request.cookies.get(THEME_COOKIE, ""))


_HEAD = (
    '<link rel="stylesheet" href="/_raymc/dashboard.css"><script defer src="/_raymc/dashboard.js"></script>'
)
_SWITCH = "document.cookie = '{cookie}={value}; path=/; max-age=31536000; SameSite=Strict'; location.reload()"
_LOG_OUT = f"fetch('{LOGOUT}', {{method: 'POST'}}).then(() => location.assign('{LOGIN}'))"


@contextmanager
def frame(page: Page, spec: PageSpec, pages: Sequence[PageSpec]) -> Iterator[None]:
    """Build the frame of a page, with the way to all others; what is built in the block is its content."""
    ui.add_head_html(_HEAD)
    ui.colors(primary="#1d4ed8", positive="#15803d", negative="#b91c1c", warning="#b45309")
    with ui.left_drawer(value=None, bordered=True).props("width=200 breakpoint=900") as drawer:
        _menu(page, spec, pages)
    # NiceGUI would ask each browser whether it is open, and log an error for one that takes its time.
    page.client.connect_handlers.clear()
    with ui.header().classes("raymc-header"):
        menu = _icon(page, "menu", "frame.menu").classes("raymc-menu")
        menu.on("click", js_handler=f"() => getElement({drawer.id}).toggle()")
        ui.link("raymc", "/").classes("raymc-brand")
        ui.space()
        _language(page)
        _theme(page)
        _visitor(page)
    page.banner = ui.label().classes("raymc-banner").props("role=status")
    page.banner.set_visibility(False)
    with ui.element("div").classes("raymc-main"):  # within the <main> of Quasar
        with ui.element("div").classes("line centred raymc-head") as page.head:
            page.title = ui.label(page.t(spec.title)).classes("raymc-title")
            page.title.props("role=heading aria-level=1")
        yield


def show_problem(page: Page, text: str) -> None:
    """Say on the page itself what is wrong."""
    with ui.card().classes("raymc-problem"):
        heading(page.t("frame.problem"))
        ui.label(text).classes("lines")


def _menu(page: Page, spec: PageSpec, pages: Sequence[PageSpec]) -> None:
    with ui.element("nav").props(f'aria-label="{page.t("frame.pages")}"').classes("raymc-nav"):
        for each in pages:
            if each.icon is None or not page.visitor.may(each.role):
                continue
            with ui.link(target=each.path).classes("raymc-way") as link:
                ui.icon(each.icon).props("aria-hidden=true")
                ui.label(page.t(each.title))
            if each is spec:
                link.classes("raymc-here").props("aria-current=page")
    ui.space()
    ui.link(page.t("frame.rest"), "/docs").classes("raymc-way raymc-quiet")
    ui.label(f"raymc {VERSION}").classes("raymc-way raymc-quiet")


def _language(page: Page) -> None:
    with _icon(page, "translate", "frame.language"), ui.menu(), ui.list():
        for code, name in OWN_NAMES.items():
            _choice(name, LANGUAGE_COOKIE, code, chosen=code == page.words.language)


def _theme(page: Page) -> None:
    with _icon(page, "contrast", "frame.theme"), ui.menu(), ui.list():
        dark = page.client.page.dark
        for code, value in THEMES.items():
            _choice(page.t(f"frame.theme_{code}"), THEME_COOKIE, code, chosen=dark is value)


def _choice(text: str, cookie: str, value: str, *, chosen: bool) -> None:
    item = ui.menu_item(text).props("active" if chosen else "")
    item.on("click", js_handler="() => { " + _SWITCH.format(cookie=cookie, value=value) + " }")


def _visitor(page: Page) -> None:
    caller = page.visitor.caller
    with _icon(page, "person", "frame.visitor"), ui.menu(), ui.list():
        with ui.item(), ui.item_section():
            ui.item_label(caller.user)
            ui.item_label(page.t("frame.role", role=page.t(f"roles.{caller.role.word}"))).props("caption")
        if caller.token_id is not None:
            ui.menu_item(page.t("frame.log_out")).on("click", js_handler=f"() => {{ {_LOG_OUT} }}")


def _icon(page: Page, icon: str, label: str) -> ui.button:
    text = page.t(label)
    return ui.button(icon=icon, color=None).props(f'flat round dense aria-label="{text}" title="{text}"')
