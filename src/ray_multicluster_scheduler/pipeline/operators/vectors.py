"""Operators on rows of numbers: norms, powers, one vector of several columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ray_multicluster_scheduler.pipeline.operators.base import Operator, Parameter, Params, replaced


def bucket(word: str, buckets: int) -> int:
    """Return the bucket that a word is hashed to; the same on every machine, and the same as Ray's."""
    return int(hashlib.sha256(word.encode()).hexdigest(), 16) % buckets


class Normalizer(Operator):
    """Each row of the columns gets length 1; a row of zeros has no direction and becomes NaN."""

    name = "Normalizer"
    about = "Rows of length 1 over the columns; a row of zeros becomes NaN."
    kind = "numeric"
    parameters: ClassVar = {
        "norm": Parameter(
            about="how length is measured", types=(str,), default="l2", choices=("l1", "l2", "max")
        )
    }

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Divide each row by its norm."""
        rows = frame[list(columns)].astype(float)
        order: Any = {"l1": 1, "l2": 2, "max": np.inf}[params["norm"]]
        lengths = np.linalg.norm(rows.to_numpy(), ord=order, axis=1)
        return frame.assign(**rows.div(lengths, axis=0))


class PowerTransformer(Operator):
    """A power transform with a given exponent."""

    name = "PowerTransformer"
    about = "Skewed numbers made more even, with a given exponent."
    kind = "numeric"
    parameters: ClassVar = {
        "power": Parameter(about="the exponent λ", types=(int, float)),
        "method": Parameter(
            about="box-cox needs positive numbers",
            types=(str,),
            default="yeo-johnson",
            choices=("yeo-johnson", "box-cox"),
        ),
    }

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Transform with SciPy, which scikit-learn uses too."""
        from scipy import special  # noqa: PLC0415 - a cluster does without it

        power = float(params["power"])
        transform = _yeo_johnson if params["method"] == "yeo-johnson" else special.boxcox
        return frame.assign(**{name: transform(frame[name].astype(float), power) for name in columns})


def _yeo_johnson(values: pd.Series, power: float) -> Any:
    """Box-Cox of the distance to zero, mirrored for negative numbers."""
    from scipy import special  # noqa: PLC0415 - a cluster does without it

    below, above = np.minimum(values, 0), np.maximum(values, 0)
    return np.where(values < 0, -special.boxcox1p(-below, 2 - power), special.boxcox1p(above, power))


class Concatenator(Operator):
    """Several columns become one column of vectors."""

    name = "Concatenator"
    about = "The columns as one column of vectors."
    kind = "numeric"
    parameters: ClassVar = {
        "output_column_name": Parameter(about="name of the new column", types=(str,), default="concat_out")
    }

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Add the vectors as the last column and drop the source columns."""
        rows = frame[list(columns)].to_numpy()
        rest = frame.drop(columns=list(columns))
        return replaced(rest, {params["output_column_name"]: rows})


class FeatureHasher(Operator):
    """Columns of counts, added up in a few buckets by the hash of their name."""

    name = "FeatureHasher"
    about = "Many columns of numbers summed in a few buckets, by the hash of their names."
    kind = "numeric"
    parameters: ClassVar = {
        "num_features": Parameter(about="how many buckets", types=(int,)),
        "output_column": Parameter(about="name of the new column", types=(str,), default="hashed"),
    }

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Sum the columns of each bucket."""
        sums = np.zeros((len(frame), params["num_features"]))
        for name in columns:
            sums[:, bucket(name, params["num_features"])] += frame[name].to_numpy(dtype=float)
        return replaced(frame, {params["output_column"]: sums})


FAMILY = (Normalizer(), PowerTransformer(), Concatenator(), FeatureHasher())
