"""The page about the command line is written from the commands, and none is missing."""

import re

from tests.docs import cli_page


def test_the_page_is_what_the_commands_say() -> None:
    assert cli_page.PAGE.read_text() == cli_page.page(), "run: python -m tests.docs.cli_page"


def test_every_command_and_every_option_has_its_line() -> None:
    text = cli_page.PAGE.read_text()
    commands = re.findall(r"^## raymc (.+)$", text, re.M)
    assert {"submit", "jobs", "explain", "top", "config check", "local up"} <= set(commands)
    for option in ("--array INDICES", "--on-unreachable", "--entrypoint-resources JSON", "--all-mine", "-f"):
        assert f"`{option}" in text
