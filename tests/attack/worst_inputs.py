"""The worst inputs of regular expressions, made from the expressions themselves, and what they cost."""

from __future__ import annotations

import gc
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # `re._parser` from Python 3.11 on
    import sre_constants as sre
    import sre_parse

#: What a processor can measure, what four times an input may cost, and of how many runs the best counts:
#: beside other work, pages and caches make single runs several times dearer.
MEASURABLE_S = 0.003
MOST_GROWTH = 8.0
RUNS = 6
#: So much of an attack is enough to see which of them is the worst.
TRIAL_CHARS = 2_000
#: Of the repeated texts that a pattern suggests, and of those that are then tried at full length.
MOST_PUMPS = 40
WORST = 1

Work = Callable[[str], object]
Made = Callable[[int], str]


class Grows(AssertionError):
    """Four times the input takes far more than four times the time."""


def cost_s(work: Work, text: str) -> float:
    """Return the processor time of one run."""
    gc.disable()  # its turns depend on all that the process has
    try:
        begun = time.thread_time()
        work(text)
        return time.thread_time() - begun
    finally:
        gc.enable()


def check_growth(work: Work, made: Made, most: int) -> float:
    """Double the input until it costs something, then go on: four times as much may cost eight times as much.

    What is in proportion costs four times as much then, and what grows with the square sixteen times. What
    costs nothing at the largest permitted size may grow as it likes. Two comparisons must find too much: a
    single one does so where the matcher's memory no longer fits a cache. Returns what the largest input has
    cost; raises `Grows`.
    """
    size = 1_000
    while (spent := cost_s(work, made(size))) < MEASURABLE_S:
        if size >= most:
            return spent
        size = min(2 * size, most)
    grown: list[str] = []
    for larger in (4 * size, 8 * size):
        if larger > most:
            break
        spent, growth = compared(work, made(larger // 4), made(larger))
        if growth <= MOST_GROWTH:
            return spent
        grown.append(f"{spent:.3f} s for {larger} characters, {growth:.1f} times as long as for a quarter")
    if grown:
        raise Grows(f"{'; '.join(grown)}: {made(40)[:60]!r}")
    return spent


def compared(work: Work, quarter: str, whole: str) -> tuple[float, float]:
    """Return what the whole costs, and how much more than its quarter: the best of runs that take turns.

    A slow moment of the machine hits both alike.
    """
    quarters, wholes = [], []
    for _ in range(RUNS):
        quarters.append(cost_s(work, quarter))
        wholes.append(cost_s(work, whole))
        growth = min(wholes) / max(min(quarters), MEASURABLE_S)
        if growth <= MOST_GROWTH:
            break
    return min(wholes), growth


def pumped(text: str, *, begin: str = "", end: str = "") -> Made:
    """Return what makes an input of a size: a text that is repeated, between a beginning and an end."""
    return lambda size: begin + text * (size // len(text)) + end


def check_pattern(work: Work, pattern: re.Pattern[Any], most: int) -> float:
    """Attack with what the pattern suggests; returns the cost of the worst attack at the largest size."""
    texts, letters, begins = pumps(pattern)
    attacks = [
        pumped(text, begin=begin, end=end)
        for text in texts
        for begin in ["", *begins]
        for end in ["", "\0", " ", *letters[:1]]
    ]
    attacks.sort(key=lambda made: cost_s(work, made(TRIAL_CHARS)), reverse=True)
    return max(check_growth(work, made, most) for made in attacks[:WORST])


def pumps(pattern: re.Pattern[Any]) -> tuple[list[str], list[str], list[str]]:
    """Return texts that match parts of a pattern: whatever is repeated in a bad input is such a text.

    Also the characters that it names, and the first parts of what it matches.
    """
    is_text = isinstance(pattern.pattern, str)
    text = pattern.pattern if is_text else pattern.pattern.decode("latin-1")
    parsed = sre_parse.parse(text, pattern.flags)
    letters = list(islice(dict.fromkeys(_letters(parsed)), 12)) or ["a"]
    pairs = [one + other for one in letters[:5] for other in letters[:5]]
    found = dict.fromkeys([*letters, *_prefixes(parsed, letters), *pairs])
    begins = dict.fromkeys(islice(_prefixes(parsed, []), 4))
    return [each for each in islice(found, MOST_PUMPS) if each], letters, list(begins)


def _letters(parsed: Iterable[Any]) -> Iterator[str]:
    """Yield each character that a pattern names, and one of each class."""
    for kind, value in parsed:
        if kind in {sre.LITERAL, sre.NOT_LITERAL}:
            yield chr(value)
        elif kind is sre.IN:
            yield from _of_class(value)
        else:
            for inner in _inside(kind, value):
                yield from _letters(inner)


def _inside(kind: Any, value: Any) -> list[Any]:
    if kind is sre.BRANCH:
        return list(value[1])
    if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
        return [value[2]]
    if kind is sre.SUBPATTERN:
        return [value[3]]
    if kind in {sre.ASSERT, sre.ASSERT_NOT}:
        return [value[1]]
    return []


_OF_CATEGORY = {
    sre.CATEGORY_DIGIT: "7",
    sre.CATEGORY_WORD: "w",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_NOT_SPACE: "s",
    sre.CATEGORY_NOT_WORD: "-",
    sre.CATEGORY_NOT_DIGIT: "d",
}


def _of_class(value: Any) -> list[str]:
    """Return some characters of a class; of a negated one, some that it excludes and one that it takes."""
    found = []
    for kind, what in value:
        if kind is sre.LITERAL:
            found.append(chr(what))
        elif kind is sre.RANGE:
            found.append(chr(what[0]))
        elif kind is sre.CATEGORY:
            found.append(_OF_CATEGORY[what])
        elif kind is sre.NEGATE:
            found.append("x")
    return found


def _prefixes(parsed: Iterable[Any], letters: list[str]) -> Iterator[str]:
    """Yield matches of the first parts of each sequence in a pattern."""
    for first in [*letters[:4], "x"]:  # what a dot stands for
        text = ""
        for kind, value in parsed:
            text += _sample(kind, value, first)
            yield text
        for kind, value in parsed:
            for inner in _inside(kind, value):
                yield from _prefixes(inner, [first])


def _sample(kind: Any, value: Any, dot: str) -> str:
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.NOT_LITERAL:
        return "x" if chr(value) != "x" else "y"
    if kind is sre.ANY:
        return dot
    if kind is sre.IN:
        taken = _of_class(value)
        return "x" if value[0][0] is sre.NEGATE else taken[0]
    if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
        return "".join(_sample(*each, dot) for each in value[2]) * max(1, min(value[0], 50))
    if kind is sre.BRANCH:
        return "".join(_sample(*each, dot) for each in value[1][0])
    if kind is sre.SUBPATTERN:
        return "".join(_sample(*each, dot) for each in value[3])
    return ""
