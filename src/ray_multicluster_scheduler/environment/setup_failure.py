"""Why Ray could not set up an environment: the error of pip, uv or conda, and whether a retry can help.

Ray reports both only as text: a traceback of its own that ends with the output of pip, uv or conda. This is
the only module that parses that text.
"""

from __future__ import annotations

import re

#: In characters: enough for the errors of pip and conda about a handful of packages.
MAX_CHARS = 600

_TRACEBACK = "Traceback (most recent call last):"
#: The output of pip, uv or conda follows this line.
_OUTPUT = re.compile(r"^(?:Last \d+ lines of stdout|Output):[ \t]*$", re.MULTILINE)
#: `ERROR: …` of pip, `error: …` of uv, `PackagesNotFoundError: …` and `ResolvePackageNotFound:` of conda.
#: The colon is looked for first: else each `Error` of a word without one would be looked at up to its end.
_COMPLAINT = re.compile(r"(?=\w+:)(?:ERROR|error|\w*(?:Error|Exception|NotFound)\w*):")
#: The first line of the exception at the end of a traceback.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<words>[A-Za-z_]\w*(?:: .*)?)$")
_TIMED_OUT = re.compile(r"Failed to install runtime_env within the timeout of [\d.]+ seconds")
_NOISE = re.compile(
    r"WARNING:|\[notice\]|note:|hint:|\[end of output\]|Collecting |Downloading |Using cached "
)
#: There may be hundreds of versions.
_VERSIONS = re.compile(r"\(from versions: (?P<all>[^()]*)\)")
_SHOWN_VERSIONS = 3
#: Ray quotes the whole environment between these, with all of its variables.
_QUOTED_ENV = " from the runtime env {", "} doesn't"
#: A conda environment that is not there: its name and more stand between these.
_NO_CONDA_ENV = "conda environment '", "doesn't exist"

#: Network problems, which may be over in a minute.
_TRANSIENT = re.compile(
    r"connection (?:broken|refused|reset|aborted|timed out|failed)|ConnectionError|ConnectionReset"
    r"|NewConnection|timed out|ReadTimeout|ConnectTimeout|TimeoutError|temporary failure|could not resolve"
    r"|name or service not known|network is unreachable|no route to host|dns error|error sending request"
    r"|ProxyError|CondaHTTPError|CondaSSLError|incomplete ?read|no space left"
    r"|\b(?:408|425|429|500|502|503|504)\b[^\n]{0,40}(?:error|gateway|unavailable|too many|timeout|url)",
    re.IGNORECASE,
)
#: Problems that would occur again on the same cluster.
_PERMANENT = re.compile(
    r"No matching distribution found|Could not find a version that satisfies|ResolutionImpossible"
    r"|conflicting dependencies|No solution found|requirements are unsatisfiable|Invalid requirement"
    r"|requires a different Python|PackagesNotFoundError|ResolvePackageNotFound|UnsatisfiableError"
    r"|nothing provides|Could not find Conda executable"
    r"|EnvironmentNameNotFound|Changing the ray version is not allowed|Please install virtualenv"
    r"|No such file or directory: '(?:conda|podman)'"
)


def setup_error(message: str) -> str:
    """Return the lines that say what is wrong, without Ray's traceback around them."""
    if timed_out := _TIMED_OUT.search(message):
        return timed_out[0]
    lines = _complaint(_output(message) or "") or _last_exception(message) or _lines(message)
    text = " ".join(dict.fromkeys(lines))
    text = _VERSIONS.sub(_fewer_versions, _without_env(text))
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} …"


def fails_again(message: str) -> bool:
    """Tell whether the same environment would fail again on the same cluster; False when in doubt."""
    begin, end = _NO_CONDA_ENV
    is_permanent = _PERMANENT.search(message) or end in message.partition(begin)[2]
    return bool(is_permanent) and not _TRANSIENT.search(_output(message) or message)


def _output(message: str) -> str | None:
    """Return the output of pip, uv or conda, without Ray's text after it; None if Ray quotes none."""
    headings = list(_OUTPUT.finditer(message))
    return message[headings[-1].end() :].partition(f"\n{_TRACEBACK}")[0] if headings else None


def _complaint(output: str) -> list[str]:
    """Return all lines from the first error on: the lines after it explain a conflict."""
    lines = _lines(output)
    first = next((number for number, line in enumerate(lines) if _COMPLAINT.match(line)), None)
    if first is None:
        return []
    network = [line for line in lines if _NOISE.match(line) and _TRANSIENT.search(line)][-1:]
    return [*(line for line in lines[first:] if not _NOISE.match(line)), *network]


def _last_exception(message: str) -> list[str]:
    """Return the lines of the exception at the end of the last traceback."""
    *_, last = message.rpartition(f"{_TRACEBACK}\n")
    lines = last.splitlines()
    for number, line in enumerate(lines):
        if line[:1].strip() and (match := _EXCEPTION.match(line)):
            return [match["words"], *_lines("\n".join(lines[number + 1 :]))]
    return []


def _lines(text: str) -> list[str]:
    return [stripped for line in text.splitlines() if (stripped := line.strip())]


def _without_env(text: str) -> str:
    begin, end = _QUOTED_ENV
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    return f"{before} doesn't{after}" if found else text


def _fewer_versions(match: re.Match[str]) -> str:
    versions = match["all"].split(", ")
    if len(versions) <= _SHOWN_VERSIONS:
        return match[0]
    return f"(from versions: …, {', '.join(versions[-_SHOWN_VERSIONS:])})"
