"""Functions and classes of the user, plain or decorated, and the resources that they request."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.resources import parse_requirements
from ray_multicluster_scheduler.tasks import lazy_import

#: Resources that have their own option in Ray.
_NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
#: Marks a generator in the table of an actor's methods.
GENERATOR = "generator"


class UserCallable:
    """A function or class: undecorated, as a remote object at home, and pickled for other clusters."""

    def __init__(self, given: Any) -> None:
        self.plain, self.defaults = _undecorated(given)
        self._given = given if given is not self.plain else None
        self._at_home: Any = None
        self._prepared: tuple[Mapping[str, Any], Any] | None = None
        self._pickled: tuple[str, bytes] | None = None

    @property
    def name(self) -> str:
        """Return its name, for display."""
        return str(getattr(self.plain, "__name__", self.plain))

    @property
    def at_home(self) -> Any:
        """Return the remote function or actor class; cached, as Ray exports each such object once."""
        if self._at_home is None:
            self._at_home = self._given or lazy_import.ray().remote(self.plain)
        return self._at_home

    def prepared(self, options: Mapping[str, Any]) -> Any:
        """Return `at_home` with options applied; the last result is cached, as most calls repeat them."""
        last = self._prepared  # read once: another thread may replace it
        if last is None or last[0] != options:
            last = self._prepared = (dict(options), self.at_home.options(**options))
        return last[1]

    @property
    def pickled(self) -> tuple[str, bytes]:
        """Return digest and pickle."""
        if self._pickled is None:
            content = lazy_import.ray().cloudpickle.dumps(self.plain)
            self._pickled = hashlib.sha256(content).hexdigest()[:16], content
        return self._pickled


class CallableCache:
    """Caches the `UserCallable` of a function or class for as long as the program holds it."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, UserCallable] = WeakKeyDictionary()

    def get(self, given: Any) -> UserCallable:
        """Return the `UserCallable` of a function or class."""
        if not callable(given) and not hasattr(given, "remote"):
            raise InvalidRequest(f"a function or a class is needed, not {given!r}")
        try:
            known = self._known.get(given)
            if known is None:
                known = self._known[given] = UserCallable(given)
        except TypeError:  # not hashable or not weakly referenceable: not cached
            return UserCallable(given)
        return known


def options_and_claim(
    defaults: Mapping[str, Any],
    requirements: Mapping[str, float] | None,
    changes: Mapping[str, Any],
    *,
    default_cpus: float,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return Ray's options and the resources they claim. Requirements without CPU claim no CPU."""
    options = {**defaults, **{name: value for name, value in changes.items() if value is not None}}
    if requirements is not None:
        asked = parse_requirements(requirements, name="resource_requirements")
        options = {
            name: value for name, value in options.items() if name not in {*_NAMED.values(), "resources"}
        }
        options["num_cpus"] = asked.get("CPU", 0)
        options |= {option: asked[name] for name, option in _NAMED.items() if name in asked}
        if custom := {name: amount for name, amount in asked.items() if name not in _NAMED}:
            options["resources"] = custom
    if options.get("memory"):
        options["memory"] = int(options["memory"])
    claim = {name: float(options.get(option) or 0) for name, option in _NAMED.items()}
    if options.get("num_cpus") is None:
        claim["CPU"] = default_cpus
    claim |= options.get("resources") or {}
    return options, {name: amount for name, amount in claim.items() if amount}


def methods_of(plain: type) -> dict[str, int | str]:
    """Return the public methods of an actor class and how many values each returns."""
    found = inspect.getmembers(plain, inspect.isroutine)
    return {
        name: _returns(method) for name, method in found if not name.startswith("__") or name in {"__call__"}
    }


def is_ordered(plain: type, options: Mapping[str, Any]) -> bool:
    """Tell whether Ray starts calls of this actor in order: it is neither async nor multi-threaded."""
    methods = (method for _, method in inspect.getmembers(plain, inspect.isroutine))
    is_async = any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in methods)
    return (
        not is_async and (options.get("max_concurrency") or 1) == 1 and not options.get("concurrency_groups")
    )


def _returns(method: Any) -> int | str:
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        return GENERATOR
    returns = getattr(method, "__ray_num_returns__", 1)
    return returns if isinstance(returns, int) else GENERATOR


def _undecorated(given: Any) -> tuple[Any, dict[str, Any]]:
    """Return the function or class behind `@ray.remote`, and the options given there."""
    if hasattr(given, "__ray_metadata__"):  # a class, decorated natively
        return given.__ray_metadata__.modified_class.__ray_actor_class__, dict(given._default_options)
    if hasattr(given, "_function") and hasattr(given, "_default_options"):
        return given._function, dict(given._default_options)
    if hasattr(given, "actor_cls"):  # decorated while Ray Client was connected
        return given.actor_cls, dict(given._options or {})
    if hasattr(given, "_func") and hasattr(given, "remote"):
        return given._func, dict(given._options or {})
    return given, {}
