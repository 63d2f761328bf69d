"""An environment, option by option, with who has set each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row


def environment_rows(
    runtime_env: Mapping[str, Any], origins: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return option, value and origin, each variable for itself; an origin that is not told is empty."""
    rows = []
    for option, value in runtime_env.items():
        if option == "env_vars" and isinstance(value, Mapping):
            rows += [(f"env_vars.{name}", str(each)) for name, each in value.items()]
        else:
            rows.append((option, value if isinstance(value, str) else _readable(value)))
    return [(option, value, origins.get(option, "")) for option, value in rows]


def _readable(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1 if len(str(value)) > 60 else None)


class EnvironmentTable(PlainTable):
    """Three columns: option, value, and whether the cluster, the job or the scheduler has set it."""

    def __init__(self, page: Page, *, empty: str) -> None:
        heads = [page.t(f"environment.{name}") for name in ("option", "value", "origin")]
        super().__init__(heads, empty=empty)
        self._page = page
        self.props("data-test=environment").classes("by-word")

    def show_environment(self, runtime_env: Mapping[str, Any], origins: Mapping[str, str]) -> None:
        """Show an environment."""
        self.show([self._row(*row) for row in environment_rows(runtime_env, origins)])

    def _row(self, option: str, value: str, origin: str) -> Row:
        told = self._page.words.known(f"environment.of_{origin}", origin)
        return (option, value, origin), (partial(_mono, option), partial(_mono, value), told)


def _mono(text: str) -> None:
    ui.label(text).classes("mono lines")
