"""Options and arguments that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ray_multicluster_scheduler.cli.options.completion import complete_clusters, complete_groups, complete_ids

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The clusters.yaml to use, instead of the one that is found.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; an unknown value is null.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Stay and refresh until Ctrl-C.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="GROUP", help="All jobs of this group (array).", autocompletion=complete_groups
    ),
]
_WHICH = "submission id or its beginning, name, or group"
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="ID", help=f"Which jobs: {_WHICH}.", autocompletion=complete_ids)
]
#: The same for a command that has another way to name jobs, such as --group.
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help=f"Which jobs: {_WHICH}.", autocompletion=complete_ids),
]
ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Name of the cluster.", autocompletion=complete_clusters)
]
