"""The environment pages say what the code does, in both languages."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ray_multicluster_scheduler.environment.compose import compose, normalise
from ray_multicluster_scheduler.environment.options import OPTIONS, RESERVED, SEARCH_PATHS
from ray_multicluster_scheduler.environment.paths import map_paths, relative_script
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / name for name in ("environments.md", "environments.zh-CN.md")]
BLOCK = re.compile(r"(?P<refused><!-- refused -->\n)?^```(?P<kind>json|yaml)\n(?P<text>.*?)^```", re.M | re.S)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def examples(page: Path, *, refused: bool) -> list[dict[str, Any]]:
    """Every environment on the page; those after `<!-- refused -->` are shown because they are wrong."""
    found = []
    for block in BLOCK.finditer(page.read_text()):
        if bool(block["refused"]) == refused:
            content = (json.loads if block["kind"] == "json" else yaml.safe_load)(block["text"])
            clusters = content.get("clusters")
            found += [entry["runtime_env"] for entry in clusters.values()] if clusters else [content]
    return found


@each_page
def test_every_example_is_accepted_as_it_stands(page: Path) -> None:
    accepted = examples(page, refused=False)
    assert len(accepted) >= 10
    for env in accepted:
        normalise(env, where=page.name)


@each_page
def test_every_example_of_a_mistake_is_refused(page: Path) -> None:
    wrong = examples(page, refused=True)
    assert wrong
    for env in wrong:
        with pytest.raises(InvalidRuntimeEnv):
            normalise(env, where=page.name)


def test_both_pages_show_the_same_examples() -> None:
    english, chinese = ([block[0] for block in BLOCK.finditer(page.read_text())] for page in PAGES)
    assert english == chinese


@each_page
def test_what_the_gpu_cluster_is_said_to_send_is_what_it_sends(page: Path) -> None:
    envs = examples(page, refused=False)
    gpu_cluster = next(env for env in envs if env.get("pip") == ["torch", "torchvision"])
    assert compose(gpu_cluster, None, identity={}) == envs[envs.index(gpu_cluster) + 1]


@each_page
def test_every_option_and_every_variable_of_ours_is_named(page: Path) -> None:
    text = page.read_text()
    options = [option for option in OPTIONS if not option.startswith("_")]
    assert [name for name in (*options, *RESERVED, *SEARCH_PATHS) if name not in text] == []


@each_page
def test_the_example_of_a_mapped_path_is_true(page: Path) -> None:
    commands = re.findall(r"^\| [^|]+ \| `(python /[^`]+)` \|$", page.read_text(), re.M)
    written, sent = commands
    assert map_paths(written, ["/home/zorro/", "/Users/zorro/"], "/home/zorro/") == sent


@each_page
def test_the_examples_of_relative_paths_are_true(page: Path) -> None:
    commands = re.findall(r"`((?:cd|python) [^`/]*(?:/home/user[^`]*)?)`", page.read_text())
    assert [command for command in commands if relative_script(command)] == ["python script.py"]
    assert len(commands) == 4
