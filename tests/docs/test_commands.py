"""Every command that the documents show is one that works."""

import importlib.util
import re
import shlex

import pytest
import typer
from tests.support.pages import PAGES, ROOT, Block, blocks, commands

from ray_multicluster_scheduler.cli.registry import app

#: Programs of others that readers know, and what sets a variable. Pages that are run as a whole run theirs.
OTHERS = re.compile(r"(sudo|export|curl|ls|mkdir|pip|python3|ray|ps|source|ss) |RAY_ADDRESS=")
SHELL = blocks("bash", "console")
INLINE = sorted(
    {
        command
        for page in PAGES
        for command in re.findall(r"(?<!`)`(raymc [^`\n]+)`", page.read_text())
        if "…" not in command
    }
)
FROM_AN_INDEX = re.compile(r"pip install\s[^`\n]*\bray[-_]multicluster", re.IGNORECASE)
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.M))


def parse_raymc(command: str) -> None:
    """Let the real command line read a command, without running it."""
    reader, words = typer.main.get_command(app), shlex.split(command)[1:]
    context = reader.make_context("raymc", [*words])
    while hasattr(reader, "resolve_command"):  # Typer has its own copy of Click, so this is no click.Group
        name, reader, words = reader.resolve_command(context, words)
        context = reader.make_context(name, [*words], parent=context)


def check(command: str) -> None:
    """Fail for a command that could not work."""
    words = shlex.split(command)
    if words[0] == "raymc":
        parse_raymc(command)
    elif words[0] == "make":
        assert words[1] in TARGETS
    elif words[:2] == [".venv/bin/python", "-m"]:
        assert importlib.util.find_spec(words[2])
    else:
        assert OTHERS.match(command), "neither ours nor a program that readers know"


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_command_is_accepted(block: Block) -> None:
    found = list(commands(block))
    assert found
    for command in found:
        check(command)


def test_nobody_is_told_to_install_this_package_from_an_index_which_does_not_have_it() -> None:
    told = [
        path for path in [*PAGES, *(ROOT / "src").rglob("*.py")] if FROM_AN_INDEX.search(path.read_text())
    ]
    assert told == []


@pytest.mark.parametrize("command", INLINE)
def test_every_command_in_the_text_can_be_completed_to_one_that_is_accepted(command: str) -> None:
    problems = []
    for rest in ("", " X", " -- X"):
        try:
            return parse_raymc(command + rest)
        except Exception as problem:  # noqa: BLE001 - whatever the command line objects to
            problems.append(str(problem))
    pytest.fail("; ".join(problems))


@pytest.mark.parametrize(
    "command",
    ["raymc frob", "raymc submit --nope -- x", "raymc jobs --state", "raymc local sideways", "raymc info"],
)
def test_a_command_that_does_not_exist_would_be_noticed(command: str) -> None:
    with pytest.raises(Exception, match=r"No such|requires an argument|Missing parameter"):
        parse_raymc(command)


@pytest.mark.parametrize(
    "name",
    [
        "README",
        "docs/dashboard",
        "docs/deployment",
        "docs/how-to/curl",
        "docs/index",
        "docs/pipelines",
        "docs/quickstart",
        "docs/ray-client",
        "docs/server",
        "docs/why-the-wrong-cluster",
    ],
)
def test_both_languages_show_the_same_commands_and_programs(name: str) -> None:
    english, chinese = (
        [re.sub(r"  # .*", "", block.text) for block in blocks("bash", "python", "yaml", pages=[ROOT / page])]
        for page in (f"{name}.md", f"{name}.zh-CN.md")
    )
    assert english
    assert english == chinese
