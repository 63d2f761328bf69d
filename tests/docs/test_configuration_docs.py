"""The pages about configuration and settings say what the code does, in both languages."""

import json
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo
from tests.support.pages import DOCS, ROOT, Block, blocks

from ray_multicluster_scheduler.config import ClusterEntry, Settings, load_config, parse_config
from ray_multicluster_scheduler.config.schema import ServerSettings

#: In each language: where a reader begins, and the reference of everything else.
PAGES = {
    language: [DOCS / f"configuration{ending}", DOCS / "reference" / f"settings{ending}"]
    for language, ending in (("en", ".md"), ("zh", ".zh-CN.md"))
}
FIELDS = {**ClusterEntry.model_fields, **Settings.model_fields, **ServerSettings.model_fields}
SECONDS = {"en": "seconds", "zh": "秒"}
EXAMPLES = {language: blocks("yaml", pages=pages) for language, pages in PAGES.items()}

each_language = pytest.mark.parametrize("language", PAGES)


def rows(page: Path) -> list[list[str]]:
    """Return the cells of each row whose first cell is a key."""
    lines = page.read_text().splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]


def described(language: str) -> dict[str, list[str]]:
    """Return what stands behind each key, on both pages of a language."""
    return {key.strip("`"): rest for page in PAGES[language] for key, *rest in rows(page)}


@each_language
def test_every_key_is_described_once_and_no_other(language: str) -> None:
    assert sorted(key.strip("`") for page in PAGES[language] for key, *_ in rows(page)) == sorted(FIELDS)


@each_language
def test_the_reference_names_the_keys_that_are_on_the_page_before_it(language: str) -> None:
    configuration, settings = PAGES[language]
    before_its_tables = settings.read_text().partition("\n## ")[0]
    assert [key for key, *_ in rows(configuration) if key not in before_its_tables] == []


def default_of(name: str, field: FieldInfo) -> set[str]:
    """Return what may stand in the table for the default of a field."""
    if field.is_required():
        return {"required", "必填"}
    if field.default is not None:
        return {f"`{json.dumps(field.default)}`"}
    return {"`http://<head host>:8265`"} if name == "dashboard" else {"none", "无"}


@each_language
def test_every_default_is_the_real_one(language: str) -> None:
    told = {name: default for name, (default, *_) in described(language).items()}
    assert [name for name, field in FIELDS.items() if told[name] not in default_of(name, field)] == []


@each_language
def test_every_setting_has_its_unit_and_is_explained(language: str) -> None:
    told = described(language)
    assert [name for name in FIELDS if not told[name][-1]] == []
    for name in Settings.model_fields:
        unit = told[name][1]
        assert unit, name
        assert name.endswith("_s") == (unit == SECONDS[language]), name


@pytest.mark.parametrize("block", [block for found in EXAMPLES.values() for block in found], ids=str)
def test_every_example_loads(block: Block) -> None:
    assert parse_config(block.text, block.page).clusters


def test_both_languages_show_the_same_examples() -> None:
    english, chinese = ([block.text for block in found] for found in EXAMPLES.values())
    assert english
    assert english == chinese


def test_the_example_file_loads() -> None:
    assert [spec.name for spec in load_config(ROOT / "examples" / "clusters.yaml").clusters] == [
        "centos",
        "mac",
    ]
