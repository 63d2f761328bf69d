"""The options of a runtime_env that Ray 2.60 accepts, each with a parser that returns its canonical form.

A parser returns None for "nothing to send". It raises `InvalidRuntimeEnv` with the problem and what to write
instead; `environment/compose.py` adds the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ray_multicluster_scheduler.errors import InvalidRuntimeEnv
from ray_multicluster_scheduler.model.result import RESULT_VAR
from ray_multicluster_scheduler.text import did_you_mean

# Lists of pip requirements: the package that an item names, and merging two lists.


#: Options and comments after the requirement itself: `requests==2.31 --hash=sha256:…  # why`.
_TRAILER = re.compile(r"(?<=\s)(?:--|#).*")
_COMMENT = re.compile(r"(?:^|\s)#.*")
#: Marks of an item that only pip can interpret: a path, a URL, a variable of the node.
_LEFT_TO_PIP = ("/", "\\", "${")


def requirement_of(item: str) -> Requirement:
    """Return what `item` requires, without options and comments; raises `InvalidRequirement`."""
    try:
        return Requirement(_TRAILER.sub("", item))
    except RecursionError:  # a marker of brackets
        raise InvalidRequirement(f"{item[:40]!r}… is nested too deep") from None


def package_name(item: str) -> str | None:
    """Return the package that `item` names (`foo-bar` for `Foo_Bar>=1`); None for an option or a URL."""
    try:
        return canonicalize_name(requirement_of(item).name)
    except InvalidRequirement:
        return None


def is_below(item: str, version: str) -> bool:
    """Tell whether the requirement `item` takes only versions before this one: pinned, or with a limit."""
    first = Version(version)
    with suppress(ValueError):  # a number that is too long for Python
        for each in requirement_of(item).specifier:
            if each.operator in {"==", "<="} and Version(each.version.replace(".*", ".99999")) < first:
                return True
            if each.operator == "<" and Version(each.version) <= first:
                return True
    return False


def is_requirement(item: str) -> bool:
    """Tell whether pip understands `item`. `pandas=1.5` (one `=`) would otherwise fail on the cluster."""
    left_to_pip = item.startswith("-") or any(mark in item for mark in _LEFT_TO_PIP)
    return left_to_pip or package_name(item) is not None


def merge_requirements(weaker: Sequence[str], stronger: Sequence[str]) -> list[str]:
    """Merge two lists; for a package that `stronger` names, only its item of `stronger` is kept.

    Options and URLs have no name and all stay. Those of `stronger` come last, where they win in pip as well.
    """
    same, named = set(stronger), {package_name(item) for item in stronger} - {None}
    kept = [item for item in weaker if item not in same and package_name(item) not in named]
    return [*kept, *stronger]


def parse_requirements_file(text: str) -> list[str]:
    """Return the items of a requirements.txt, without comments and with continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [item for line in lines if (item := _COMMENT.sub("", line).strip())]


# The `env_vars` of a runtime_env: parsing the forms that people write, and merging two layers.
#
# Ray expands a value on the node, when a worker starts. `${NAME}` becomes the node's value or an empty text.
# `$NAME` becomes the node's value, but stays literal if the node has none. A search path that ends in
# `$PYTHONPATH` could then name a directory of that name, so we write it with braces.


#: Lists of directories: several lines are joined, and `${NAME}` inside NAME stands for the cluster's value.
SEARCH_PATHS = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
#: Every job gets these variables about itself. They are set last, so that a job can rely on them.
CLUSTER_VAR = "RAY_MULTICLUSTER_CLUSTER"
#: The same value under the name that programs for the older package read.
OLDER_CLUSTER_VAR = "RAY_MULTICLUSTER_CURRENT_CLUSTER"
SUBMISSION_ID_VAR = "RAY_MULTICLUSTER_SUBMISSION_ID"
ATTEMPT_VAR = "RAY_MULTICLUSTER_ATTEMPT"
#: The index of a job of an array. It is one of the job's own variables, so that a retry has it too.
ARRAY_INDEX_VAR = "RAY_MULTICLUSTER_ARRAY_INDEX"
#: Address of the server that accepted the job, unless the job sets another one, and the token for it.
ADDRESS_VAR = "RAY_MULTICLUSTER_ADDRESS"
TOKEN_VAR = "RAY_MULTICLUSTER_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VAR = "RAY_MULTICLUSTER_TOKEN_FILE"  # noqa: S105 - the name of a variable
#: The URI of this package, where it travels with the job.
PACKAGE_VAR = "RAY_MULTICLUSTER_PACKAGE"
#: The name by which programs import this package, and an older one of the same name.
PACKAGE_NAME = "ray_multicluster_scheduler"
RESERVED = frozenset(
    {CLUSTER_VAR, OLDER_CLUSTER_VAR, SUBMISSION_ID_VAR, ATTEMPT_VAR, PACKAGE_VAR, RESULT_VAR}
)

_NAME = re.compile(r"[^\s=\0]+")


def parse_env_vars(value: object) -> dict[str, str]:
    """Return `env_vars` as a mapping of text. Values may be secrets, so no message shows one."""
    pairs = value.items() if isinstance(value, Mapping) else _pairs_of_items(value)
    parsed: dict[str, str] = {}
    for name, content in pairs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidRuntimeEnv("a name is empty, or is not text without spaces and '='")
        if name in RESERVED:
            raise InvalidRuntimeEnv(f"{name} is set by the scheduler for every job; use another name")
        if name in parsed:
            raise InvalidRuntimeEnv(f"{name} is given twice; keep one of them")
        text = _variable_text(name, content)
        parsed[name] = _search_path(name, _directories(text)) if name in SEARCH_PATHS else text
    return parsed


def with_env_vars(runtime_env: Any, added: Mapping[str, str]) -> Any:
    """Return a job's runtime_env with more variables, unchecked; they replace others of their names."""
    if not added or not isinstance(runtime_env, (Mapping, type(None))):
        return runtime_env
    given = (runtime_env or {}).get("env_vars") or {}
    if isinstance(given, (list, tuple)):
        kept = [item for item in given if str(item).partition("=")[0] not in added]
        return {**(runtime_env or {}), "env_vars": [*kept, *(f"{name}={added[name]}" for name in added)]}
    if not isinstance(given, Mapping):
        return runtime_env
    return {**(runtime_env or {}), "env_vars": {**given, **added}}


def layer_env_vars(cluster: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """Merge the variables; the job's win. A search path of the job may include the cluster's."""
    layered = {**cluster, **job}
    for name in SEARCH_PATHS:
        if name in cluster and name in job:
            inherited = _directories(cluster[name])
            items = [
                part
                for item in _directories(job[name])
                for part in (inherited if item == f"${{{name}}}" else [item])
            ]
            layered[name] = _search_path(name, items)
    return layered


def checkouts_on_path(env_vars: Mapping[str, str]) -> list[str]:
    """Return the directories of PYTHONPATH that have the name of this package.

    The older package of the same name lies in such a checkout, and a program that gets PYTHONPATH imports it.
    """
    entries = _directories(env_vars.get("PYTHONPATH", ""))
    return [entry for entry in entries if entry.rstrip("/").rpartition("/")[2] == PACKAGE_NAME]


def _pairs_of_items(value: object) -> list[tuple[str, str]]:
    if not isinstance(value, (list, tuple)):
        raise InvalidRuntimeEnv(f"must be a mapping or a list of KEY=VALUE items, not {type(value).__name__}")
    pairs = []
    for number, item in enumerate(value, start=1):
        if not isinstance(item, str) or "=" not in item:
            raise InvalidRuntimeEnv(f"item {number} is not of the form KEY=VALUE")
        name, _, content = item.partition("=")
        pairs.append((name, content))
    return pairs


def _variable_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        raise InvalidRuntimeEnv(f"{name} is a boolean; write the text that the program should see, in quotes")
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        what = "has no value" if value is None else f"is a {type(value).__name__}"
        raise InvalidRuntimeEnv(f"{name} {what}; give text in quotes (empty: '')")
    if "\0" in value:
        raise InvalidRuntimeEnv(f"{name} contains a NUL character, which no environment can hold")
    return value


def _directories(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", ":").split(":")]


def _search_path(name: str, items: Iterable[str]) -> str:
    """Join the items without duplicates and without empty ones, which would mean the current directory."""
    braced = (f"${{{name}}}" if item == f"${name}" else item for item in items)
    return ":".join(dict.fromkeys(item for item in braced if item))


#: Returns the content of a local file: parsed if it is a `.yaml`/`.yml` file, else as text. The caller passes
#: it in, because only the submitting machine may read local files, never a server.
ReadFile = Callable[[str], object]
Parser = Callable[[Any, "ReadFile | None"], Any]

_URI_SCHEMES = ("abfss", "azure", "file", "gcs", "gs", "http", "https", "local", "s3")
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.xz")
_YAML = (".yaml", ".yml")


def plain(value: object) -> Any:
    """Return a deep copy that contains only JSON types, since the environment is sent as JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InvalidRuntimeEnv("the keys of a mapping must be text")
        return {key: plain(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    raise InvalidRuntimeEnv(f"a {type(value).__name__} cannot be sent to a cluster; use text, numbers, lists")


def _mapping(value: object, keys: Iterable[str] = ()) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRuntimeEnv(f"must be a mapping, not {type(value).__name__}")
    names = list(keys)
    for key in value:
        if names and key not in names:
            raise InvalidRuntimeEnv(f"unknown key {key!r}; {did_you_mean(str(key), names)}")
    copy: dict[str, Any] = plain(value)
    return copy


def _text(value: object, _read: ReadFile | None = None) -> str | None:
    if not isinstance(value, str):
        raise InvalidRuntimeEnv(f"must be text, not {type(value).__name__}")
    return value.strip() or None


def _texts(value: object, _read: ReadFile | None = None) -> list[str] | None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InvalidRuntimeEnv("must be a list of text items")
    return list(value) or None


def _whole(value: object, _read: ReadFile | None = None) -> Any:
    return plain(value)


def _env_vars(value: object, _read: ReadFile | None = None) -> dict[str, str] | None:
    return parse_env_vars(value) or None


def _hook(value: object, _read: ReadFile | None = None) -> str | None:
    if callable(value):
        raise InvalidRuntimeEnv("a job can only name a function that its workers import: 'module.function'")
    return _text(value)


def _config(value: object, _read: ReadFile | None = None) -> dict[str, Any] | None:
    config = _mapping(value, ("setup_timeout_seconds", "eager_install", "log_files"))
    timeout = config.get("setup_timeout_seconds", -1)
    if isinstance(timeout, bool) or not isinstance(timeout, int) or (timeout <= 0 and timeout != -1):
        raise InvalidRuntimeEnv("setup_timeout_seconds must be a whole number above 0, or -1 for no limit")
    if not isinstance(config.get("eager_install", True), bool):
        raise InvalidRuntimeEnv("eager_install must be true or false")
    _texts(config.get("log_files", []))
    return config or None


def _container(value: object, _read: ReadFile | None = None) -> dict[str, Any] | None:
    container = _mapping(value, ("image", "worker_path", "run_options"))
    if container and not container.get("image"):
        raise InvalidRuntimeEnv("must name its 'image'")
    return container or None


def _package(value: object, archives: tuple[str, ...]) -> str:
    """Check a directory, an archive or the URI of an archive. Whether it exists is checked by the caller."""
    location = _text(value)
    if location is None:
        raise InvalidRuntimeEnv("the path is empty; leave the option out, or write '.' for this directory")
    scheme, is_uri, path = location.partition("://")
    if is_uri and scheme not in _URI_SCHEMES:
        raise InvalidRuntimeEnv(f"Ray cannot fetch {scheme}:// URIs; it takes {', '.join(_URI_SCHEMES)}")
    if scheme == "local" and is_uri:
        if not path.startswith("/"):
            raise InvalidRuntimeEnv("a local:// URI needs an absolute path: local:///path/on/every/node")
    elif is_uri and not path.partition("?")[0].endswith(archives):
        raise InvalidRuntimeEnv(f"a URI must end in {', '.join(archives)}: Ray unpacks it on each node")
    return location


def _working_dir(value: object, _read: ReadFile | None = None) -> str:
    return _package(value, _ARCHIVES)


def _py_modules(value: object, _read: ReadFile | None = None) -> list[str] | None:
    return [_package(item, (*_ARCHIVES, ".whl")) for item in _texts(value) or ()] or None


def _read_local(path: str, read: ReadFile | None, instead: str) -> object:
    if read is None:
        raise InvalidRuntimeEnv(f"the file {path!r} cannot be read here; {instead}")
    return read(path)


def _requirements(value: object, read: ReadFile | None) -> list[str]:
    if isinstance(value, str):
        content = _read_local(value, read, 'write the requirements themselves, as ["pandas==1.5.3"]')
        if not isinstance(content, str):
            raise InvalidRuntimeEnv(f"{value!r} is not a requirements file")
        value = parse_requirements_file(content)
    items = [item.strip() for item in _texts(value) or ()]
    for item in items:
        if not is_requirement(item):
            raise InvalidRuntimeEnv(
                f"{item!r} is not a requirement that pip understands; write one such as 'name==1.2.3'"
            )
    return list(dict.fromkeys(items))


def _installer(name: str) -> Parser:
    """Return the parser of `pip` or `uv`, which accepts a list, or a mapping with installer options."""
    kinds: dict[str, Any] = {f"{name}_check": bool, f"{name}_version": str}
    options = f"{name}_install_options" if name == "pip" else f"{name}_pip_install_options"

    def parse(value: object, read: ReadFile | None) -> Any:
        if not isinstance(value, Mapping):
            return _requirements(value, read) or None
        settings = _mapping(value, ("packages", *kinds, options))
        if "packages" not in settings:
            raise InvalidRuntimeEnv("a mapping needs 'packages', the list of requirements")
        packages = _requirements(settings.pop("packages"), read)
        for key, kind in kinds.items():
            if key in settings and not isinstance(settings[key], kind):
                raise InvalidRuntimeEnv(f"{key} must be a {kind.__name__}")
        _texts(settings.get(options, []))
        if not packages:
            return None
        return {"packages": packages, **settings} if settings else packages

    return parse


def _conda(value: object, read: ReadFile | None) -> str | dict[str, Any] | None:
    """Return the name of an existing environment, or the mapping from which Ray builds one."""
    if isinstance(value, Mapping) and value.keys() & {"conda_env_name", "conda_env_file"}:
        files = _mapping(value, ("conda_env_name", "conda_env_file"))
        # The name wins: such an environment was created beforehand, from that file.
        value = files.get("conda_env_name") or files.get("conda_env_file")
    if isinstance(value, str) and value.strip().endswith(_YAML):
        instead = "name an environment that exists on the cluster, or write its content as a mapping"
        value = _read_local(value.strip(), read, instead)
        if not isinstance(value, Mapping):
            raise InvalidRuntimeEnv("the conda file does not hold a mapping with 'dependencies'")
    if isinstance(value, Mapping):
        return _conda_mapping(value)
    return _text(value)


def _conda_mapping(value: Mapping[str, Any]) -> dict[str, Any] | None:
    conda = _mapping(value)
    dependencies = conda.get("dependencies", [])
    if not isinstance(dependencies, list):
        raise InvalidRuntimeEnv("'dependencies' must be a list, such as ['python=3.10', {'pip': ['pandas']}]")
    for item in dependencies:
        if isinstance(item, dict) and item.keys() == {"pip"}:
            item["pip"] = _requirements(item["pip"] or [], None)
        elif not isinstance(item, str):
            raise InvalidRuntimeEnv("each dependency is text, or one mapping {'pip': [...]}")
    return conda or None


#: Every option of Ray 2.60. Those that begin with an underscore are added by Ray's own clients.
OPTIONS: Mapping[str, Parser] = {
    "env_vars": _env_vars,
    "pip": _installer("pip"),
    "uv": _installer("uv"),
    "conda": _conda,
    "working_dir": _working_dir,
    "py_modules": _py_modules,
    "excludes": _texts,
    "config": _config,
    "image_uri": _text,
    "container": _container,
    "py_executable": _text,
    "java_jars": _texts,
    "worker_process_setup_hook": _hook,
    "nsight": _whole,
    "rocprof_sys": _whole,
    "_nsight": _whole,
    "_rocprof_sys": _whole,
    "_ray_commit": _whole,
    "_ray_release": _whole,
    "_inject_current_ray": _whole,
}


# What an environment in canonical form installs: by `pip`, by `uv`, or in the pip section of conda.


INSTALLERS = ("pip", "uv")


def installer_of(env: Mapping[str, Any]) -> str | None:
    """Return which of the two installers an environment uses."""
    return next((name for name in INSTALLERS if name in env), None)


def packages_of(env: Mapping[str, Any]) -> list[str]:
    """Return the packages of its installer."""
    value = env.get(installer_of(env) or "", [])
    packages: list[str] = value["packages"] if isinstance(value, Mapping) else value
    return packages


def settings_of(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else its installer is told, such as `pip_check`."""
    value = env.get(installer_of(env) or "")
    return {key: value[key] for key in value if key != "packages"} if isinstance(value, Mapping) else {}


def pip_section(env: Mapping[str, Any]) -> list[str]:
    """Return the packages that its conda mapping lets pip install."""
    conda = env.get("conda")
    dependencies = conda.get("dependencies", []) if isinstance(conda, Mapping) else []
    return [package for item in dependencies if isinstance(item, Mapping) for package in item["pip"]]
