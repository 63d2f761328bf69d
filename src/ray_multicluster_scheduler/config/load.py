"""Turn the text of clusters.yaml into checked records, or into one message with all problems; compare two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ray_multicluster_scheduler.config.document import Document, Problem, Where, explain, read_document, shown
from ray_multicluster_scheduler.config.fields import cluster_name
from ray_multicluster_scheduler.config.schema import ClusterEntry, ServerSettings, Settings
from ray_multicluster_scheduler.errors import ConfigInvalid, ConfigNotFound, InvalidRequest
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.text import did_you_mean

MAX_BYTES = 2**20
SECTIONS = ("clusters", "scheduler", "server")
Schema = TypeVar("Schema", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A valid configuration file."""

    path: Path
    clusters: tuple[ClusterSpec, ...]
    settings: Settings
    server: ServerSettings = field(default_factory=ServerSettings)

    def cluster(self, name: str) -> ClusterSpec:
        """Return the cluster of this name, or raise `InvalidRequest` with the nearest one."""
        by_name = {spec.name: spec for spec in self.clusters}
        if name not in by_name:
            raise InvalidRequest(
                f"no cluster is named {name!r} in {self.path}; {did_you_mean(name, by_name)}"
            )
        return by_name[name]


def load_config(path: Path) -> Config:
    """Read a configuration file. `ConfigInvalid` lists every problem; `ConfigNotFound`: no such file."""
    path = path.absolute()
    return _Reading(_read_text(path), path, is_file=lambda name: Path(name).is_file()).config()


def parse_config(text: str, path: Path) -> Config:
    """Check the text of a configuration file without touching any file; `path` is for messages."""
    return _Reading(text, path, is_file=lambda _: True).config()


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigNotFound([str(path)]) from None
    except OSError as error:
        raise ConfigInvalid(str(path), [f"the file cannot be read: {error.strerror}"]) from error
    if len(content) > MAX_BYTES:
        raise ConfigInvalid(str(path), [f"the file is larger than {MAX_BYTES} bytes; is it the right one?"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = Problem(line=line, text="this is not UTF-8 text; save the file as UTF-8")
        raise ConfigInvalid(str(path), [str(problem)]) from None


class _Reading:
    """Reads one file, and collects all problems instead of stopping at the first."""

    def __init__(self, text: str, path: Path, *, is_file: Callable[[str], bool]) -> None:
        self.path = path
        self.is_file = is_file
        self.document: Document = read_document(text, path)
        self.problems: list[Problem] = list(self.document.problems)

    def config(self) -> Config:
        sections = self.sections()
        settings = self.validated(Settings, sections["scheduler"], ("scheduler",))
        server = self.validated(ServerSettings, sections["server"], ("server",))
        elsewhere = settings is not None and settings.address is not None and sections["clusters"] is None
        specs = [] if elsewhere else self.distinct(list(self.specs(sections["clusters"])))
        if self.problems or settings is None or server is None:
            raise ConfigInvalid(str(self.path), [str(problem) for problem in sorted(self.problems)])
        return Config(path=self.path, clusters=tuple(specs), settings=settings, server=server)

    def note(self, where: Where, text: str) -> None:
        self.problems.append(self.document.problem(where, text))

    def sections(self) -> dict[str, Any]:
        """Return the sections of the file, None for a missing one."""
        value = self.document.value
        if value is not None and not isinstance(value, dict):
            self.note((), f"expected `clusters:` with the clusters indented below it, found {shown(value)}")
            raise ConfigInvalid(str(self.path), [str(problem) for problem in self.problems])
        written = value or {}
        for key in written.keys() - set(SECTIONS):
            self.note((key,), f"unknown key; {did_you_mean(key, SECTIONS)}")
        return {section: written.get(section) for section in SECTIONS}

    def validated(self, schema: type[Schema], value: object, where: Where) -> Schema | None:
        try:
            return schema.model_validate({} if value is None else value)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                self.note((*where, *details["loc"]), explain(details, schema))
            return None

    def specs(self, clusters: object) -> Iterator[tuple[Where, ClusterSpec]]:
        for name, where, value in self.entries(clusters):
            entry = self.validated(ClusterEntry, value, where)
            if entry is None or name is None:
                continue
            spec = entry.spec(name, self.path.parent)
            if spec.tls_ca and not self.is_file(spec.tls_ca):
                self.note((*where, "tls_ca"), f"there is no file {spec.tls_ca}")
            yield where, spec

    def entries(self, clusters: object) -> Iterator[tuple[str | None, Where, object]]:
        """Yield name, place and content of each entry of either form; an invalid name is None."""
        if not isinstance(clusters, (dict, list)) or not clusters:
            self.note(("clusters",), f"expected at least one cluster, found {shown(clusters)}")
        elif isinstance(clusters, dict):
            for key, value in clusters.items():
                yield self.name(key, ("clusters", key)), ("clusters", key), value
        else:
            for position, item in enumerate(clusters):
                where = ("clusters", position)
                rest = dict(item) if isinstance(item, dict) else item
                given = rest.pop("name", None) if isinstance(rest, dict) else None
                yield self.name(given, (*where, "name")), where, rest

    def name(self, name: object, where: Where) -> str | None:
        if not isinstance(name, str):
            self.note(where, "missing: each cluster in a list needs a `name`.")
            return None
        try:
            return cluster_name(name)
        except ValueError as error:
            self.note(where, str(error))
            return None

    def distinct(self, entries: list[tuple[Where, ClusterSpec]]) -> list[ClusterSpec]:
        """Note names and dashboards that occur twice: each job would be counted on both."""
        names: dict[str, Where] = {}
        dashboards: dict[str, str] = {}
        for where, spec in entries:
            if spec.name in names:
                first = self.document.lines[names[spec.name]]
                self.note((*where, "name"), f"the name {spec.name!r} is taken by the cluster on line {first}")
            elif other := dashboards.get(spec.dashboard):
                self.note(
                    (*where, "dashboard"),
                    f"{spec.dashboard} is the dashboard of {other!r} too; write each cluster's own",
                )
            names.setdefault(spec.name, where)
            dashboards.setdefault(spec.dashboard, spec.name)
        return [spec for _, spec in entries]


# Settings of the older package of this name. They are not read, and the user is told so.


_PREFIX = "SCHEDULER_"
_NOT_NEEDED = "it is not needed here"
#: What to write instead of each of its variables, without their prefix.
INSTEAD = {
    "EXECUTION_MODE": "write `max_running_jobs: 1` in a cluster's entry for one job at a time",
    "SUBMISSION_WAIT_TIME": f"{_NOT_NEEDED}: what each job claims is counted from the moment it is placed",
    "RESOURCE_THRESHOLD": "write `max_resources` in a cluster's entry to use a part of it only",
    "RESOURCE_CHECK_INTERVAL": "write `probe_interval_s` under `scheduler:`",
    "JOB_COMPLETION_TIMEOUT": "give `timeout_s` to submit_job",
    "TASK_COMPLETION_TIMEOUT": "give `timeout` to get_task_result or ray.get",
    "ACTOR_READY_TIMEOUT": "give `timeout` to submit_actor",
    "DEFAULT_TASK_TIMEOUT": "give `timeout` to get_task_result or ray.get",
    "CONNECTION_TIMEOUT": "write `request_timeout_s` under `scheduler:`",
    "JOB_CLIENT_TIMEOUT": "write `request_timeout_s` under `scheduler:`",
    "JOB_CLIENT_CACHE_TIMEOUT": _NOT_NEEDED,
    "JOB_CLIENT_CONNECTION_TEST_TIMEOUT": "write `probe_timeout_s` under `scheduler:`",
    "JOB_STATUS_CHECK_INTERVAL": "write `poll_interval_s` under `scheduler:`",
    "HEALTH_CHECK_INTERVAL": "write `probe_interval_s` under `scheduler:`",
    "CACHE_TIMEOUT": _NOT_NEEDED,
    "EMPTY_QUEUE_SLEEP": _NOT_NEEDED,
    "QUEUE_CONDITION_WAIT_TIMEOUT": _NOT_NEEDED,
    "ACTOR_NOTIFICATION_WAIT": _NOT_NEEDED,
    "JOB_POLL_CHECK_INTERVAL": "give `check_interval` to wait_for_all_jobs",
    "PROMETHEUS_QUERY_TIMEOUT": f"{_NOT_NEEDED}: no Prometheus is asked",
    "TASK_QUEUE_MAX_SIZE": f"{_NOT_NEEDED}: the queue is on disk",
    "TASK_QUEUE_DEFAULT_MAX_SIZE": f"{_NOT_NEEDED}: the queue is on disk",
    "CIRCUIT_BREAKER_FAILURE_THRESHOLD": _NOT_NEEDED,
    "CIRCUIT_BREAKER_RECOVERY_TIMEOUT": _NOT_NEEDED,
    "RETRY_SLEEP": "write `retry_delay_s` under `scheduler:`",
    "BACKOFF_TIME": "write `retry_delay_s` under `scheduler:`",
    "WORKER_THREAD_JOIN_TIMEOUT": _NOT_NEEDED,
    "ERROR_LOOP_SLEEP": _NOT_NEEDED,
    "REPEATED_ERROR_SLEEP": _NOT_NEEDED,
    "CLUSTER_WEIGHT_DEFAULT": "write `weight` in a cluster's entry",
}
#: Also read by the older package, below the user's home.
SETTINGS_FILE = Path(".ray_scheduler") / "settings.yaml"


def ignored_settings(environ: Mapping[str, str], *, home: Path) -> list[str]:
    """Return a sentence for each setting of the older package that is set and does nothing here."""
    sentences = [
        f"the variable {_PREFIX}{name} is not read: {instead}"
        for name, instead in INSTEAD.items()
        if _PREFIX + name in environ
    ]
    if (home / SETTINGS_FILE).is_file():
        sentences.append(
            f"{home / SETTINGS_FILE} is not read: settings are in clusters.yaml, under `scheduler:` and in "
            "each cluster's entry (docs/how-to/from-the-older-package.md says which)"
        )
    return sentences


# The difference between two configurations, for a user who has changed the file.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Names of clusters and settings, without values: those may be secrets."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    settings: tuple[str, ...]

    def __str__(self) -> str:
        parts = [
            f"{label}: {', '.join(names)}"
            for label, names in (
                ("added", self.added),
                ("changed", self.changed),
                ("removed", self.removed),
                ("settings", self.settings),
            )
            if names
        ]
        return "; ".join(parts) or "nothing has changed"


def config_change(old: Config, new: Config) -> ConfigChange:
    """Return which clusters were added, changed and removed, and which settings have another value."""
    before = {spec.name: spec for spec in old.clusters}
    after = {spec.name: spec for spec in new.clusters}
    return ConfigChange(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name, spec in after.items() if name in before and before[name] != spec),
        removed=tuple(name for name in before if name not in after),
        settings=tuple(
            name
            for name in type(new.settings).model_fields
            if getattr(old.settings, name) != getattr(new.settings, name)
        ),
    )
