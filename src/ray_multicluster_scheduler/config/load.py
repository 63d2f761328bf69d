"""Turn the text of clusters.yaml into checked records, or into one message with all problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ray_multicluster_scheduler.config.document import Document, read_document
from ray_multicluster_scheduler.config.fields import cluster_name
from ray_multicluster_scheduler.config.problems import Problem, Where, explain, shown
from ray_multicluster_scheduler.config.schema import ClusterEntry, ServerSettings, Settings
from ray_multicluster_scheduler.errors import ConfigInvalid, ConfigNotFound, InvalidRequest
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.text.spelling import did_you_mean

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
