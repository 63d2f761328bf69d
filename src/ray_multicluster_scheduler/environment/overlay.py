"""pip packages on top of a named conda environment, a combination that Ray itself refuses.

The named environment is not changed: the packages are installed into a directory beside it, on each node,
and that directory goes first on `sys.path`. The code for this is sent with the job; it lives in
`packages/overlay`. This module decides what to send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: The packages to install, as JSON; read on the node.
OVERLAY_VAR = "RAYMC_OVERLAY"
OVERLAY_HOOK = "raymc_overlay.install"
#: What Ray makes of a `worker_process_setup_hook`: the variable that its workers read.
HOOK_VAR = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


def overlay_problem(env: Mapping[str, Any]) -> str | None:
    """Return why pip packages cannot be added to the named conda environment of `env`; None if they can."""
    if "uv" in env:
        return "uv cannot be laid over it; write the packages under pip"
    if "worker_process_setup_hook" in env:
        return (
            "its packages are installed by a worker_process_setup_hook, and there is one already; remove it"
        )
    pip = env["pip"]
    settings = [name for name in ("pip_check", "pip_version") if isinstance(pip, Mapping) and pip.get(name)]
    if settings:
        return f"{', '.join(settings)}: the pip of that environment is used as it is; leave this out"
    return None


def add_overlay(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env` with its `pip` packages turned into an overlay."""
    pip = env["pip"]
    packages = pip["packages"] if isinstance(pip, Mapping) else pip
    options = pip.get("pip_install_options", []) if isinstance(pip, Mapping) else []
    request = json.dumps({"packages": packages, "options": options}, sort_keys=True)
    rest = {option: value for option, value in env.items() if option != "pip"}
    env_vars = {**env.get("env_vars", {}), OVERLAY_VAR: request}
    return {**rest, "env_vars": env_vars, "worker_process_setup_hook": OVERLAY_HOOK}


def remove_overlay(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env` as it was before `add_overlay`, for another cluster. The code sent with it may stay."""
    if not has_overlay(env):
        return dict(env)
    env_vars = dict(env["env_vars"])
    request = json.loads(env_vars.pop(OVERLAY_VAR))
    env_vars.pop(HOOK_VAR, None)
    packages, options = request["packages"], request["options"]
    pip = {"packages": packages, "pip_install_options": options} if options else packages
    rest = {option: value for option, value in env.items() if option != "worker_process_setup_hook"}
    return {**rest, "env_vars": env_vars, "pip": pip}


def has_overlay(env: Mapping[str, Any]) -> bool:
    """Tell whether an environment was made by `add_overlay`."""
    return env.get("worker_process_setup_hook") == OVERLAY_HOOK


def for_ray_client(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env` for a session of Ray Client, which would ignore its `worker_process_setup_hook`."""
    if not isinstance(hook := env.get("worker_process_setup_hook"), str):
        return dict(env)
    return {**env, "env_vars": {**env.get("env_vars", {}), HOOK_VAR: hook}}
