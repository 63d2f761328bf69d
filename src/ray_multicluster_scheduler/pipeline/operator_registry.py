"""All operators by name."""

from __future__ import annotations

from collections.abc import Mapping

from ray_multicluster_scheduler.environment.options import nearest
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.pipeline.operators import bins, encoders, scalers, text, vectors
from ray_multicluster_scheduler.pipeline.operators.base import Operator

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for family in (scalers, vectors, bins, encoders, text)
    for operator in family.FAMILY
}


def find_operator(name: str) -> Operator:
    """Return an operator; the error for an unknown name suggests a similar one."""
    if name not in OPERATORS:
        raise InvalidRequest(
            f"no operator is called {name!r}; {nearest(name, OPERATORS)} (`raymc pipeline list` shows all)"
        )
    return OPERATORS[name]
