"""The configuration pages say what the code does, in both languages."""

import json
import re
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from ray_multicluster_scheduler.config import ClusterEntry, Settings, load_config, parse_config
from ray_multicluster_scheduler.config.schema import ServerSettings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("configuration.md", "configuration.zh-CN.md")]
ENGLISH = PAGES[0]
FIELDS = {**ClusterEntry.model_fields, **Settings.model_fields, **ServerSettings.model_fields}
SECONDS = {"configuration.md": "seconds", "configuration.zh-CN.md": "秒"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def rows(page: Path) -> dict[str, list[str]]:
    """The cells of each reference table row, by the key in its first cell."""
    cells = [
        line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| `")
    ]
    return {first.strip("`"): rest for first, *rest in cells}


def yaml_blocks(page: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@each_page
def test_every_key_is_documented_and_no_other(page: Path) -> None:
    assert sorted(rows(page)) == sorted(FIELDS)


@each_page
@pytest.mark.parametrize(("name", "field"), FIELDS.items(), ids=FIELDS.keys())
def test_every_default_is_the_real_one(page: Path, name: str, field: FieldInfo) -> None:
    default = rows(page)[name][0]
    if field.is_required():
        assert default in {"required", "必填"}
    elif field.default is not None:
        assert default == f"`{json.dumps(field.default)}`"
    elif name == "dashboard":
        assert default == "`http://<head host>:8265`"
    else:
        assert default in {"none", "无"}


@each_page
@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_its_unit(page: Path, name: str) -> None:
    unit = rows(page)[name][1]
    assert unit
    assert name.endswith("_s") == (unit == SECONDS[page.name])


@pytest.mark.parametrize(("name", "field"), FIELDS.items(), ids=FIELDS.keys())
def test_the_english_page_uses_the_words_of_the_schema(name: str, field: FieldInfo) -> None:
    assert field.description
    assert rows(ENGLISH)[name][-1].startswith(field.description)


@each_page
def test_every_example_on_the_page_loads(page: Path) -> None:
    blocks = yaml_blocks(page)
    assert len(blocks) == 5
    for block in blocks:
        assert parse_config(block, page).clusters


def test_both_pages_show_the_same_examples() -> None:
    english, chinese = map(yaml_blocks, PAGES)
    assert english == chinese


def test_the_example_file_loads() -> None:
    assert [spec.name for spec in load_config(ROOT / "examples" / "clusters.yaml").clusters] == [
        "centos",
        "mac",
    ]
