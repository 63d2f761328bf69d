"""One line of a `.gitignore`, with exactly git's meaning.

A pattern is matched against one path at a time, from the root down, so the parents are already decided.
Libraries that match whole path names let `!src` bring back `src/data` where `data` is ignored; git does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"!-/:-@\[-`{-~",
    "space": r"\s", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
#: The pieces of a pattern, tried in this order.
_PIECES = re.compile(
    r"""
    (?P<any_above> (?:^|(?<=/)) \*\*+ / )         # `**/`: here or any number of directories further down
  | (?P<anything>  (?:^|(?<=/)) \*\*+ $ )         # `/**`: all that lies below
  | (?P<some>      \*+ )
  | (?P<one>       \? )
  | \[ (?: (?P<not> [!^] ) | (?![!^]) )           # `[!a-z]`; a bracket at its start is one of the set
       (?P<set> (?: \[:[a-z]+:\] | \\. | [^\\] ) (?: \[:[a-z]+:\] | \\. | [^]\\] )* ) \]
  | \\ (?P<escaped> . )
  | (?P<plain>     [^\\[] )
    """,
    re.VERBOSE | re.DOTALL,
)
_SET_PIECES = re.compile(r"\[:(?P<posix>[a-z]+):\] | \\(?P<escaped>.) | (?P<plain>.)", re.VERBOSE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What one line says about a path."""

    regex: re.Pattern[str]
    #: False for a line that starts with `!`: it brings back what a line before it ignored.
    ignores: bool
    directories_only: bool
    #: A pattern with a slash is about the whole path, any other about the last part of it.
    whole_path: bool


def parse_patterns(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """Return the patterns of an ignore file in order; comments and invalid lines are left out."""
    return tuple(pattern for line in lines if (pattern := _parse(line)) is not None)


def verdict(patterns: Sequence[Pattern], path: str, *, is_directory: bool) -> bool | None:
    """Tell whether the last pattern that matches ignores `path`; None when none matches."""
    name = path.rpartition("/")[2]
    for pattern in reversed(patterns):
        if pattern.directories_only and not is_directory:
            continue
        if pattern.regex.fullmatch(path if pattern.whole_path else name):
            return pattern.ignores
    return None


def _parse(line: str) -> Pattern | None:
    text = _without_spaces_at_its_end(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    ignores = not text.startswith("!")
    text = text if ignores else text[1:]
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    translated = _translate(text.removeprefix("/"))
    if not translated:
        return None
    try:
        regex = re.compile(translated, re.DOTALL)
    except re.error:  # a range that runs backwards, such as [z-a]
        return None
    return Pattern(regex, ignores, directories_only, whole_path="/" in text)


def _without_spaces_at_its_end(line: str) -> str:
    """Return a line without them; the first one counts if it is escaped."""
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return line[: len(text) + backslashes % 2]


def _translate(text: str) -> str | None:
    """Return the regular expression of a pattern; None for an open bracket or a backslash at the end."""
    regex, position = "", 0
    while position < len(text):
        piece = _PIECES.match(text, position)
        if piece is None:
            return None
        position = piece.end()
        regex += _piece(piece)
    return regex


def _piece(piece: re.Match[str]) -> str:
    match piece.lastgroup:
        case "any_above":
            return "(?:.*/)?"
        case "anything":
            return ".+"
        case "some":
            return "[^/]*"
        case "one":
            return "[^/]"
        case "set":
            return _set(piece["set"], negated=bool(piece["not"]))
    return re.escape(piece["escaped"] or piece["plain"])


def _set(content: str, *, negated: bool) -> str:
    """Translate the content of brackets. A set never matches a slash."""
    inside = ""
    for index, piece in enumerate(_SET_PIECES.finditer(content)):
        if piece["posix"]:
            inside += _POSIX.get(piece["posix"], "")
        elif piece["plain"] == "-" and index > 0 and piece.end() < len(content):
            inside += "-"
        else:
            inside += re.escape(piece["escaped"] or piece["plain"])
    return f"(?!/)[{'^' if negated else ''}{inside}]"
