"""What every page has: the way to all other pages, a choice of language and theme, and the visitor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.words import OWN_NAMES
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.version import VERSION

#: Path, text, icon, and who may go there.
_WAYS = (
    ("/", "overview.title", "dashboard", Role.READ),
    ("/jobs", "jobs.title", "list", Role.READ),
    ("/timeline", "timeline.title", "view_timeline", Role.READ),
    ("/submit", "submit.title", "add_circle", Role.SUBMIT),
    ("/clusters", "clusters.title", "dns", Role.READ),
    ("/processes", "processes.title", "memory", Role.READ),
    ("/access", "access.title", "key", Role.ADMIN),
)
_HEAD = (
    '<link rel="stylesheet" href="/_raymc/dashboard.css"><script defer src="/_raymc/dashboard.js"></script>'
)
_SWITCH = "document.cookie = '{cookie}={value}; path=/; max-age=31536000; SameSite=Strict'; location.reload()"
_LOG_OUT = "fetch('/logout', {method: 'POST'}).then(() => location.assign('/login'))"


@contextmanager
def frame(page: Page, title: str) -> Iterator[None]:
    """Build the frame; what is built in the block is its content."""
    ui.add_head_html(_HEAD)
    ui.colors(primary="#1d4ed8", positive="#15803d", negative="#b91c1c", warning="#b45309")
    with ui.left_drawer(value=None, bordered=True).props("width=200 breakpoint=900") as drawer:
        _ways(page, title)
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
        ui.label(page.t(title)).classes("raymc-title").props("role=heading aria-level=1")
        yield


def show_problem(page: Page, problem: SchedulerError) -> None:
    """Say on the page itself what is wrong."""
    with ui.card().classes("raymc-problem"):
        ui.label(page.t("frame.problem")).classes("raymc-subtitle").props("role=heading aria-level=2")
        ui.label(str(problem))


def _ways(page: Page, title: str) -> None:
    with ui.element("nav").props(f'aria-label="{page.t("frame.pages")}"').classes("raymc-nav"):
        for path, text, icon, role in _WAYS:
            if page.visitor.may(role):
                here = text == title
                with ui.link(target=path).classes("raymc-way" + (" raymc-here" if here else "")) as link:
                    ui.icon(icon).props("aria-hidden=true")
                    ui.label(page.t(text))
                if here:
                    link.props("aria-current=page")
    ui.space()
    ui.link(page.t("frame.rest"), "/docs").classes("raymc-way raymc-quiet")
    ui.label(f"raymc {VERSION}").classes("raymc-way raymc-quiet")


def _language(page: Page) -> None:
    with _icon(page, "translate", "frame.language"), ui.menu(), ui.list():
        for code, name in OWN_NAMES.items():
            _choice(name, "raymc-language", code, chosen=code == page.words.language)


def _theme(page: Page) -> None:
    with _icon(page, "contrast", "frame.theme"), ui.menu(), ui.list():
        dark = page.client.page.dark
        for code, value in (("auto", None), ("light", False), ("dark", True)):
            _choice(page.t(f"frame.theme_{code}"), "raymc-theme", code, chosen=dark is value)


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
