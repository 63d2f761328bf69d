"""Paths in an entrypoint: moved from one cluster's home to another's, and refused if relative.

People submit a command from a Mac (`/Users/zorro/…`) that may run on Linux (`/home/zorro/…`). The paths are
replaced in the text of the shell command: parsing and rewriting the command could change its meaning.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: A path that needs no quoting in a shell. A home with other characters, such as a space, is not mapped.
_PLAIN_PATH = re.compile(r"(?:/+[\w.@%+-]+)+/*")
#: The shell word up to here. A closing bracket does not end a word: `$(pwd)/home/zorro` is one.
_WORD_SO_FAR = re.compile(r"[^\s;&|<>(]*$")
_OPENERS = ("=", ",", "[", "{")
_QUOTES = ("'", '"', "`")


def map_paths(entrypoint: str, homes: Iterable[str], target_home: str | None) -> str:
    """Return `entrypoint` with each path below one of `homes` moved below `target_home`.

    The longest home wins. `/home/zorro2` is not below `/home/zorro`. URLs and remote paths (`host:/path`) do
    not change, and nothing changes if the target has no home.
    """
    target = _segments(target_home)
    if not target:
        return entrypoint
    sources = sorted({_segments(home) for home in homes} | {target}, key=len, reverse=True)
    either = "|".join("".join(f"/+{re.escape(name)}" for name in home) for home in sources if home)
    moved = "".join(f"/{name}" for name in target)

    def move(match: re.Match[str]) -> str:
        return moved if _starts_a_path(entrypoint[: match.start()]) else match[0]

    # A slash or the end of the name must follow a home: `/home/zorro2` is another one.
    return re.sub(rf"(?:{either})(?![^\s/:;,&|<>()\[\]{{}}'\"`\\])", move, entrypoint)


def _segments(home: str | None) -> tuple[str, ...]:
    """Return the segments of an absolute path; none if it cannot be a home (empty, `/`, quoted)."""
    return tuple(filter(None, home.split("/"))) if home and _PLAIN_PATH.fullmatch(home) else ()


def _starts_a_path(before: str) -> bool:
    """Tell whether a new path can start after the text `before`, outside of a longer path or a URL."""
    match = _WORD_SO_FAR.search(before)
    word = match[0] if match else ""
    if not word:
        return True
    if word.endswith(_QUOTES):  # an opening quote; after a closing quote the word continues
        return len(word) == 1 or word[-2] in (*_OPENERS, *_QUOTES, ":", "\\")
    part = re.split(r"['\"`]", word)[-1]
    if "://" in part:
        return False
    if word.endswith(":"):  # a list of directories continues; `host:` starts a remote path
        first = re.split(r"[=,\[]|(?<!\$)\{", part)[-1]
        return first.startswith(("/", ".", "~", "$", ":"))
    return word.endswith(_OPENERS)


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
        has_code=re.compile(r"-|-[a-zA-Z]*[cs][a-zA-Z]*"),
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
    lexer = shlex.shlex(
        entrypoint.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=";&|()<>"
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    command: list[str] = []
    skip_target = False
    try:
        words = [*lexer, ";"]
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
