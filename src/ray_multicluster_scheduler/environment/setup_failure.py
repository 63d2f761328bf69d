"""Why Ray could not set up an environment: the error of pip, uv or conda, and whether a retry can help.

Ray reports both only as text: a traceback of its own that ends with the output of pip, uv or conda. This is
the only module that parses that text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, FailedSetup
from ray_multicluster_scheduler.model.decision import NOTHING_FAILED
from ray_multicluster_scheduler.model.states import JobState

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


# Environments that a cluster could not set up and would fail to set up again: not tried there for a while.
#
# Whether an entry still applies is decided at each use. It no longer does after some minutes, after a
# restart of the cluster, and after a change of the cluster's own environment in clusters.yaml.


_INSTALLER_PREFIXES = ("PIP_", "UV_", "CONDA_")
#: After this time a package may have been published, or a conda environment created.
REMEMBERED_S = 300.0
#: Limit of remembered environments per cluster; the oldest are dropped first.
MOST_REMEMBERED = 100


def failed_setup(reason: str, spec: ClusterSpec, session_name: str | None, *, now: float) -> FailedSetup:
    """Return the record of an environment that has just failed on a cluster."""
    return FailedSetup(
        reason=reason,
        until=now + REMEMBERED_S,
        session_name=session_name,
        cluster_env=setup_digest(spec.runtime_env),
    )


def still_failing(spec: ClusterSpec, snapshot: ClusterSnapshot, *, now: float) -> Mapping[str, str]:
    """Return the environments, by key, that would still fail on a cluster, with the reason for each."""
    if not snapshot.failed_setups:
        return NOTHING_FAILED
    cluster_env = setup_digest(spec.runtime_env)
    return {
        key: f"{failed.reason} (tried there again {REMEMBERED_S / 60:g} minutes after that, or when the "
        "cluster has changed)"
        for key, failed in snapshot.failed_setups.items()
        if failed.until > now
        and failed.cluster_env == cluster_env
        and failed.session_name == snapshot.session_name
    }


def setup_digest(runtime_env: Mapping[str, Any]) -> str:
    """Return a digest of everything that Ray has to install; empty if there is nothing to install.

    Variables do not count, except those that tell an installer where packages come from.
    """
    to_set_up = {option: value for option, value in runtime_env.items() if option != "env_vars"}
    if not to_set_up:
        return ""
    variables = runtime_env.get("env_vars") or {}
    if for_installers := {
        name: variables[name] for name in variables if name.startswith(_INSTALLER_PREFIXES)
    }:
        to_set_up["env_vars"] = for_installers
    return sha256(json.dumps(to_set_up, sort_keys=True, default=str).encode()).hexdigest()[:16]


# A short summary of what Ray has to install before a program starts.


#: Part of the reason of a job whose environment is being set up. Lists of jobs search for these words.
SETTING_UP = "setting up its environment"


def is_setting_up(state: JobState, reason: str) -> bool:
    """Tell whether a job is on its cluster and waits for its environment."""
    return state is JobState.SUBMITTED and SETTING_UP in reason


def setup_summary(runtime_env: Mapping[str, Any]) -> str:
    """Summarise the slow parts of an environment (`pip: 2 packages`); empty if there are none."""
    counts = {name: _packages(runtime_env.get(name)) for name in ("pip", "uv")}
    if isinstance(conda := runtime_env.get("conda"), Mapping):  # a name needs no installation
        items = conda.get("dependencies") or ()
        counts["conda"] = sum(_packages(item["pip"]) if isinstance(item, Mapping) else 1 for item in items)
    parts = [f"{name}: {count} package{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    if "image_uri" in runtime_env or "container" in runtime_env:
        parts.append("a container image")
    return ", ".join(parts)


def _packages(value: Any) -> int:
    return len(value.get("packages", ()) if isinstance(value, Mapping) else value or ())
