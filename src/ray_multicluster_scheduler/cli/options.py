"""Options and helpers that every command shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ray_multicluster_scheduler.config import Config, find_config, load_config

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The clusters.yaml to use; without it RAY_MULTICLUSTER_CONFIG, ./clusters.yaml and the home.",
    ),
]


def open_config(argument: Path | None) -> Config:
    """Find and read the configuration of this command."""
    return load_config(find_config(argument, environ=os.environ, cwd=Path.cwd()))
