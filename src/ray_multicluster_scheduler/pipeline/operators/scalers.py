"""Scalers: numbers to comparable ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.pipeline.operators.base import Kind, Operator, Parameter, Params


def _scaled(frame: pd.DataFrame, columns: Sequence[str], scaler: str) -> pd.DataFrame:
    """Return a copy with these columns through a scaler of scikit-learn."""
    from sklearn import preprocessing  # noqa: PLC0415 - a cluster does without it

    transformer = getattr(preprocessing, scaler)()
    values = frame[list(columns)].to_numpy(dtype=float, na_value=np.nan)
    return frame.assign(**dict(zip(columns, transformer.fit_transform(values).T, strict=True)))


class StandardScaler(Operator):
    """(x - mean) / standard deviation of the whole column."""

    name = "StandardScaler"
    about = "Mean 0, standard deviation 1."
    kind = "numeric"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], _params: Params) -> pd.DataFrame:
        """Scale with scikit-learn."""
        return _scaled(frame, columns, self.name)


class MinMaxScaler(Operator):
    """(x - min) / (max - min)."""

    name = "MinMaxScaler"
    about = "From 0 to 1."
    kind = "numeric"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], _params: Params) -> pd.DataFrame:
        """Scale with scikit-learn."""
        return _scaled(frame, columns, self.name)


class MaxAbsScaler(Operator):
    """`x / max(|x|)`."""

    name = "MaxAbsScaler"
    about = "Largest absolute value 1; zero stays zero."
    kind = "numeric"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], _params: Params) -> pd.DataFrame:
        """Scale with scikit-learn."""
        return _scaled(frame, columns, self.name)


class RobustScaler(Operator):
    """(x - median) / (high quantile - low quantile)."""

    name = "RobustScaler"
    about = "Median 0, quantile range 1; a column must fit into the memory of one worker."
    kind = "numeric"
    parameters: ClassVar = {
        "quantile_range": Parameter(
            about="low and high quantile, between 0 and 1", types=(list,), default=[0.25, 0.75]
        )
    }

    def on_ray(self, columns: Sequence[str], params: Params) -> Any:
        """Fit by exact quantiles; Ray's own come from a sketch, which needs one more library."""
        from ray.data import aggregate, preprocessors  # noqa: PLC0415 - the pandas engine does without Ray

        low, high = self._range(params)
        quantiles = {"low_quantile": low, "median": 0.5, "high_quantile": high}

        # Local, so that it travels by value: workers need not have this package.
        class ExactRobustScaler(preprocessors.RobustScaler):  # type: ignore[misc]
            def _fit(self, dataset: Any) -> Any:
                wanted = {f"{stat}({name})": (name, q) for name in columns for stat, q in quantiles.items()}
                self.stats_ = dataset.aggregate(
                    *(aggregate.Quantile(name, q=q, alias_name=key) for key, (name, q) in wanted.items())
                )
                return self

        return ExactRobustScaler(columns=list(columns), quantile_range=(low, high))

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Scale by exact quantiles; a column without a range becomes zeros, as in Ray."""
        low, high = self._range(params)
        scaled = {}
        for column in columns:
            values = frame[column].astype(float)
            width = values.quantile(high) - values.quantile(low)
            centred = values - values.median()
            scaled[column] = centred * 0.0 if width == 0 else centred / width
        return frame.assign(**scaled)

    @staticmethod
    def _range(params: Params) -> tuple[float, float]:
        try:
            low, high = (float(bound) for bound in params["quantile_range"])
        except (TypeError, ValueError):
            raise InvalidRequest(
                "RobustScaler: quantile_range must be two numbers, as [0.25, 0.75]"
            ) from None
        if not 0 <= low < high <= 1:
            raise InvalidRequest(
                "RobustScaler: quantile_range goes from low to high between 0 and 1: [0.25, 0.75]"
            )
        return low, high


class SimpleImputer(Operator):
    """Fills in what is missing."""

    name = "SimpleImputer"
    about = "Missing values filled in."
    kind = "numeric"
    parameters: ClassVar = {
        "strategy": Parameter(
            about="what to fill in",
            types=(str,),
            default="mean",
            choices=("mean", "most_frequent", "constant"),
        ),
        "fill_value": Parameter(
            about="for the strategy constant", types=(str, int, float, type(None)), default=None
        ),
    }

    def kind_for(self, params: Params) -> Kind:
        """Only a mean needs numbers."""
        return "numeric" if params["strategy"] == "mean" else "any"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Fill in one value per column."""
        return frame.fillna({column: self._filler(frame[column], params) for column in columns})

    def _filler(self, column: pd.Series, params: Params) -> Any:
        if params["strategy"] == "constant":
            if params["fill_value"] is None:
                raise InvalidRequest("SimpleImputer: the strategy constant needs a fill_value")
            return params["fill_value"]
        if column.count() == 0:
            raise InvalidRequest(f"SimpleImputer: the column {column.name!r} has no value to fill in")
        return column.mean() if params["strategy"] == "mean" else column.value_counts().index[0]


FAMILY = (StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler(), SimpleImputer())
