"""Why Ray cannot set an environment up: pip's or conda's own words, and whether a retry can help.

Ray's message is a traceback of its own that ends with the output of pip, uv or conda. It has no field for
either, so this is the one place that reads the text.
"""

from __future__ import annotations

import re

#: Long enough for what pip and conda say of a handful of packages.
MAX_WORDS = 600

_TRACEBACK = "Traceback (most recent call last):"
#: What comes after it was written by pip, uv or conda.
_OUTPUT = re.compile(r"^(?:Last \d+ lines of stdout|Output):[ \t]*$", re.MULTILINE)
#: `ERROR: …` of pip, `error: …` of uv, `PackagesNotFoundError: …` and `ResolvePackageNotFound:` of conda.
_COMPLAINT = re.compile(r"(?:ERROR|error|\w*(?:Error|Exception|NotFound)\w*):")
#: The first line of an exception that a traceback ends with.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<words>[A-Za-z_]\w*(?:: .*)?)$")
_TIMED_OUT = re.compile(r"Failed to install runtime_env within the timeout of [\d.]+ seconds")
_NOISE = re.compile(
    r"WARNING:|\[notice\]|note:|hint:|\[end of output\]|Collecting |Downloading |Using cached "
)
#: All versions that exist may be hundreds.
_VERSIONS = re.compile(r"\(from versions: (?P<all>[^()]*)\)")
_SHOWN_VERSIONS = 3
#: The whole environment, with all its variables.
_QUOTED_ENV = re.compile(r" from the runtime env \{.*?\} (?=doesn't)", re.DOTALL)

#: The network or a machine on the way: it may work in a minute.
_PASSES = re.compile(
    r"connection (?:broken|refused|reset|aborted|timed out|failed)|ConnectionError|ConnectionReset"
    r"|NewConnection|timed out|ReadTimeout|ConnectTimeout|TimeoutError|temporary failure|could not resolve"
    r"|name or service not known|network is unreachable|no route to host|dns error|error sending request"
    r"|ProxyError|CondaHTTPError|CondaSSLError|incomplete ?read|no space left"
    r"|\b(?:408|425|429|500|502|503|504)\b[^\n]{0,40}(?:error|gateway|unavailable|too many|timeout|url)",
    re.IGNORECASE,
)
#: It would fail in the same way on the same cluster.
_LASTS = re.compile(
    r"No matching distribution found|Could not find a version that satisfies|ResolutionImpossible"
    r"|conflicting dependencies|No solution found|requirements are unsatisfiable|Invalid requirement"
    r"|requires a different Python|PackagesNotFoundError|ResolvePackageNotFound|UnsatisfiableError"
    r"|nothing provides|conda environment '[^']*' .*doesn't exist|Could not find Conda executable"
    r"|EnvironmentNameNotFound|Changing the ray version is not allowed|Please install virtualenv"
    r"|No such file or directory: '(?:conda|podman)'",
    re.DOTALL,
)


def setup_words(message: str) -> str:
    """Return the lines that say what is wrong, without Ray's traceback around them."""
    if timed_out := _TIMED_OUT.search(message):
        return timed_out[0]
    said = _complaint(_output(message) or "") or _last_exception(message) or _lines(message)
    text = " ".join(dict.fromkeys(said))
    text = _VERSIONS.sub(_fewer_versions, _QUOTED_ENV.sub(" ", text))
    return text if len(text) <= MAX_WORDS else f"{text[:MAX_WORDS]} …"


def fails_again(message: str) -> bool:
    """Tell whether the same environment would fail on the same cluster again: where in doubt, it may not."""
    return bool(_LASTS.search(message)) and not _PASSES.search(_output(message) or message)


def _output(message: str) -> str | None:
    """Return what pip, uv or conda wrote, without what Ray says after it; None when Ray quotes nobody."""
    found = list(_OUTPUT.finditer(message))
    return message[found[-1].end() :].partition(f"\n{_TRACEBACK}")[0] if found else None


def _complaint(output: str) -> list[str]:
    """Return all from the first complaint on: a conflict is told in the lines that follow it."""
    lines = _lines(output)
    first = next((number for number, line in enumerate(lines) if _COMPLAINT.match(line)), None)
    if first is None:
        return []
    network = [line for line in lines if _NOISE.match(line) and _PASSES.search(line)][-1:]
    return [*(line for line in lines[first:] if not _NOISE.match(line)), *network]


def _last_exception(message: str) -> list[str]:
    """Return the exception that the last traceback ends with, which may have several lines."""
    *_, last = message.rpartition(f"{_TRACEBACK}\n")
    lines = last.splitlines()
    for number, line in enumerate(lines):
        if line[:1].strip() and (found := _EXCEPTION.match(line)):
            return [found["words"], *_lines("\n".join(lines[number + 1 :]))]
    return []


def _lines(text: str) -> list[str]:
    return [stripped for line in text.splitlines() if (stripped := line.strip())]


def _fewer_versions(found: re.Match[str]) -> str:
    versions = found["all"].split(", ")
    if len(versions) <= _SHOWN_VERSIONS:
        return found[0]
    return f"(from versions: …, {', '.join(versions[-_SHOWN_VERSIONS:])})"
