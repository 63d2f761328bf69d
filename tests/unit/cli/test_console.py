"""All words of a command pass one console: harmless in a terminal, plain rows in a pipe."""

import io

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import PlainConsole

EVIL = "\x1b]0;title\x07\x1b[31mred\u202egnp\x9b2J"


def a_console(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> tuple[PlainConsole, io.StringIO]:
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    return PlainConsole(), stream


def a_table() -> Table:
    table = Table("name", "why", title=EVIL)
    table.add_row(Text(EVIL, style="red"), EVIL)
    table.add_row(Text("short"), Text("two\nlines"))
    return table


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_that_was_given_steers_the_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    console, stream = a_console(monkeypatch, terminal=terminal)
    console.print(EVIL)
    console.print(Text.assemble(EVIL, (EVIL, "bold")), soft_wrap=True)
    console.print(Group(a_table(), Text(EVIL)))
    written = stream.getvalue()
    assert "red" in written
    for bad in ("\x1b]", "\x1b[31m", "\x07", "\x9b", "\u202e"):
        assert bad not in written


def test_in_a_pipe_a_row_is_a_line_without_boxes_or_blanks_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console, stream = a_console(monkeypatch, terminal=False)
    table = Table("id", "state", "command")
    table.add_row("sub_1", Text("FAILED", style="red"), "python  /data/train.py " + "--flag " * 60)
    table.add_row("s", "", "")
    console.print(table)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "id     state   command"
    assert lines[1] == "sub_1  FAILED  python /data/train.py" + " --flag" * 60
    assert lines[2] == "s      -       -"
    assert len(lines) == 3
