"""The words of the pages, in English and Chinese, from one catalogue.

A key is the name of a file in `catalogue/`, a dot, and a key of that file: `jobs.title`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from nicegui.language import Language

#: As they are chosen, with what Quasar calls them. The first is the default.
LANGUAGES: Mapping[str, Language] = {"en": "en-US", "zh": "zh-CN"}
#: What each language calls itself.
OWN_NAMES: Mapping[str, str] = {"en": "English", "zh": "中文"}


@cache
def catalogue() -> Mapping[str, Mapping[str, str]]:
    """Return all texts by key, each by language."""
    folder = resources.files(__package__) / "catalogue"
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda f: f.name)
    return {
        f"{file.name.removesuffix('.yaml')}.{key}": texts
        for file in files
        for key, texts in yaml.safe_load(file.read_text(encoding="utf-8")).items()
    }


class Words:
    """The texts in one language."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __call__(self, key: str, /, **values: Any) -> str:
        """Return a text with its values filled in. KeyError: the catalogue has no such key."""
        text = catalogue()[key][self.language]
        return text.format(**values) if values else text

    def known(self, key: str, otherwise: str) -> str:
        """Return a text if the catalogue has it, for words that come from the service."""
        return self(key) if key in catalogue() else otherwise


def preferred(chosen: str | None, accept_language: str) -> str:
    """Return the language that was chosen, or else the first that a browser prefers and the catalogue has."""
    if chosen is not None and chosen in LANGUAGES:
        return chosen
    for part in accept_language.split(","):
        code = part.split(";")[0].strip().split("-")[0].lower()
        if code in LANGUAGES:
            return code
    return next(iter(LANGUAGES))
