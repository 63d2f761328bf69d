"""Discretizers: replace numbers by the index of their bin, as in `pandas.cut`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pandas as pd

from ray_multicluster_scheduler.pipeline.operators.base import Operator, Parameter, Params

_EDGES = {
    "right": Parameter(about="a bin holds its right edge, not its left one", types=(bool,), default=True),
    "include_lowest": Parameter(about="the first bin holds its left edge too", types=(bool,), default=False),
}


class _Discretizer(Operator):
    kind = "numeric"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Cut each column."""
        options = {**params, "labels": False}
        return frame.assign(**{name: pd.cut(frame[name], **options) for name in columns})


class UniformKBinsDiscretizer(_Discretizer):
    """Bins of the same width between the smallest and the largest value."""

    name = "UniformKBinsDiscretizer"
    about = "Replace numbers by the index of one of N bins of equal width."
    parameters: ClassVar = {"bins": Parameter(about="how many bins", types=(int,)), **_EDGES}


class CustomKBinsDiscretizer(_Discretizer):
    """Bins between given edges."""

    name = "CustomKBinsDiscretizer"
    about = "Replace numbers by the index of the bin between given edges."
    parameters: ClassVar = {"bins": Parameter(about="the edges, rising", types=(list,)), **_EDGES}


FAMILY = (UniformKBinsDiscretizer(), CustomKBinsDiscretizer())
