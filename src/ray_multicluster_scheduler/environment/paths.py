"""Paths in an entrypoint: moved from one cluster's home to another's, and refused if relative.

People submit a command from a Mac (`/Users/zorro/…`) that may run on Linux (`/home/zorro/…`). The paths are
replaced in the text of the shell command: parsing and rewriting the command could change its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

#: A path that needs no quoting in a shell. A home with other characters, such as a space, is not mapped.
_PLAIN_PATH = re.compile(r"(?:/+[\w.@%+-]+)+/*")
#: What ends a shell word, and what changes the meaning of a path inside of one. A closing bracket does not
#: end a word: `$(pwd)/home/zorro` is one.
_SEPARATORS = frozenset(" \t\n\r\f\v;&|<>(")
_MARK = re.compile(r"(?P<word>[\s;&|<>('\"`])|(?P<url>://)|(?P<opener>[=,\[]|(?<!\$)\{)")
_OPENERS = frozenset("=,[{")
_QUOTES = frozenset("'\"`")
#: A quote after one of these opens: after any other character of a word it closes.
_BEFORE_QUOTES = _SEPARATORS | _OPENERS | _QUOTES | {":", "\\"}
_STARTS_OF_PATHS = frozenset("/.~$:")


def map_paths(entrypoint: str, homes: Iterable[str], target_home: str | None) -> str:
    """Return `entrypoint` with each path below one of `homes` moved below `target_home`.

    The longest home wins. `/home/zorro2` is not below `/home/zorro`. URLs and remote paths (`host:/path`) do
    not change, and nothing changes if the target has no home.
    """
    target = _segments(target_home)
    if not target:
        return entrypoint
    sources = sorted({_segments(home) for home in homes} | {target}, key=len, reverse=True)
    names = ["/+".join(map(re.escape, home)) for home in sources if home]
    moved = "".join(f"/{name}" for name in target)
    # A slash or the end of the name must follow a home: `/home/zorro2` is another one. Of several slashes in
    # a row a match begins with the first, so that each of them is looked at once.
    below = rf"/(?<!//)/*(?:{'|'.join(names)})(?![^\s/:;,&|<>()\[\]{{}}'\"`\\])"
    return re.sub(below, _replace_where_paths_start(moved), entrypoint)


def _replace_where_paths_start(moved: str) -> Callable[[re.Match[str]], str]:
    """Return a replacement for `re.sub`: `moved` where a path can start, outside of a longer one or a URL.

    Matches come from left to right, so that no character before them is looked at twice.
    """
    read = last_part = 0
    is_url = False

    def replace(match: re.Match[str]) -> str:
        nonlocal read, last_part, is_url
        text, at = match.string, match.start()
        before = text[at - 1] if at else " "
        if before in _SEPARATORS:
            return moved
        if before in _QUOTES:  # an opening quote; after a closing one the word continues
            return moved if at == 1 or text[at - 2] in _BEFORE_QUOTES else match[0]
        if before != ":" and before not in _OPENERS:
            return match[0]
        while mark := _MARK.search(text, read, at):
            read = mark.end()
            if mark.lastgroup == "url":
                is_url = True
            else:
                last_part = read
                is_url = is_url and mark.lastgroup == "opener"
        read = max(read, at + 1 - len("://"))  # one may lie across this place
        # After a colon a list of directories continues; `host:` starts a remote path.
        continues = before != ":" or text[last_part] in _STARTS_OF_PATHS
        return moved if continues and not is_url else match[0]

    return replace


def _segments(home: str | None) -> tuple[str, ...]:
    """Return the segments of an absolute path; none if it cannot be a home (empty, `/`, quoted)."""
    return tuple(filter(None, home.split("/"))) if home and _PLAIN_PATH.fullmatch(home) else ()


#: Of a shell command. Between double quotes a backslash escapes only itself and the quote.
_PIECE = re.compile(
    r"""(?P<blank>[ \t\r\n]+)|(?P<operators>[;&|()<>]+)|(?P<plain>[^ \t\r\n;&|()<>'"\\]+)"""
    r"""|'(?P<single>[^']*)'|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"|\\(?P<escaped>.)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\(["\\])""")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_OPERATOR = re.compile(r"[;&|()]+")
_REDIRECTION = re.compile(r"&?[<>]+[&|]?")
#: Commands that run the command after them.
_PREFIXES = frozenset({"command", "env", "exec", "nohup", "time"})


class _Interpreter(NamedTuple):
    program: re.Pattern[str]
    #: Options whose value is the next word.
    takes_value: re.Pattern[str]
    #: Options that replace the script: the code is an argument, a module or the standard input.
    has_code: re.Pattern[str]


_INTERPRETERS = (
    _Interpreter(
        program=re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*"),
        takes_value=re.compile(r"-[bBdEiIOPqsSuvx]*[WX]|--check-hash-based-pycs"),
        has_code=re.compile(r"-|-[bBdEiIOPqsSuvx]*[cm].*", re.DOTALL),
    ),
    _Interpreter(
        program=re.compile(r"(?:.*/)?(?:ba|da|k|z)?sh"),
        takes_value=re.compile(r"[-+][a-zA-Z]*[oO]|--init-file|--rcfile"),
        has_code=re.compile(r"-|-[abd-rt-zA-Z]*[cs][a-zA-Z]*"),
    ),
)


def relative_script(entrypoint: str) -> str | None:
    """Return the program or script that `entrypoint` names by a relative path, or None.

    Such a path needs a `working_dir`: without one, a cluster has no directory to resolve it in. Bare commands
    (`ls`), `python -m` and `-c`, and commands after `cd /an/absolute/path` are fine.
    """
    anchored = False
    for command in _commands(entrypoint):
        if command[0] == "cd":
            anchored = anchored or len(command) == 1 or not _is_relative(command[1])
        elif not anchored and (word := _relative_word(command)):
            return word
    return None


def _commands(entrypoint: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, without assignments, redirections and `env`."""
    command: list[str] = []
    skip_target = False
    try:
        words = [*_words(entrypoint.replace("\\\n", " ").replace("\n", ";")), ";"]
    except ValueError:  # an open quote: the error message of the shell is better than ours
        return
    for word in words:
        if _OPERATOR.fullmatch(word):
            if command:
                yield command
            command = []
        elif skip_target or _REDIRECTION.fullmatch(word):
            skip_target = not skip_target
        elif command or not (word in _PREFIXES or _ASSIGNMENT.fullmatch(word)):
            command.append(word)


def _words(text: str) -> Iterator[str]:
    """Yield words and runs of operators, as `shlex` does: that needs quadratic time for a long word."""
    position = 0
    pieces: list[str] | None = None
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise ValueError("an open quote, or a backslash at the end")
        position = piece.end()
        if piece.lastgroup in {"blank", "operators"}:
            if pieces is not None:
                yield "".join(pieces)
                pieces = None
            if piece.lastgroup == "operators":
                yield piece[0]
            continue
        inside = piece[piece.lastgroup or 0]
        pieces = pieces if pieces is not None else []
        pieces.append(_ESCAPED.sub(r"\1", inside) if piece.lastgroup == "double" else inside)
    if pieces is not None:
        yield "".join(pieces)


def _relative_word(command: list[str]) -> str | None:
    program, *arguments = command
    if "/" in program and _is_relative(program):
        return program
    interpreter = next((each for each in _INTERPRETERS if each.program.fullmatch(program)), None)
    if interpreter is None:
        return None
    words = iter(arguments)
    for word in words:
        if interpreter.has_code.fullmatch(word):
            return None
        if interpreter.takes_value.fullmatch(word):
            next(words, None)
        elif not word.startswith(("-", "+")):
            return word if _is_relative(word) else None
    return None


def _is_relative(path: str) -> bool:
    return not path.startswith(("/", "~", "$"))
