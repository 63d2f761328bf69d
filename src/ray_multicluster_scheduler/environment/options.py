"""The options of a runtime_env that Ray 2.60 accepts, each with a parser that returns its canonical form.

A parser returns None for "nothing to send". It raises `InvalidRuntimeEnv` with the problem and what to write
instead; `environment/compose.py` adds the place.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray_multicluster_scheduler.environment.env_vars import parse_env_vars
from ray_multicluster_scheduler.environment.requirements import is_requirement, parse_requirements_file
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

#: Returns the content of a local file: parsed if it is a `.yaml`/`.yml` file, else as text. The caller passes
#: it in, because only the submitting machine may read local files, never a server.
ReadFile = Callable[[str], object]
Parser = Callable[[Any, "ReadFile | None"], Any]

_URI_SCHEMES = ("abfss", "azure", "file", "gcs", "gs", "http", "https", "local", "s3")
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.xz")
_YAML = (".yaml", ".yml")


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return a hint for a misspelt word: the closest valid one, or all of them."""
    words = sorted(valid)
    close = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(words)}"


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
            raise InvalidRuntimeEnv(f"unknown key {key!r}; {nearest(str(key), names)}")
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
