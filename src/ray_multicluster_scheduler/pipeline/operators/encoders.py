"""Encoders: categories to numbers, in the order of the sorted categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.pipeline.operators.base import Operator, Parameter, Params, replaced

_MAX_CATEGORIES = Parameter(
    about="per column, how many of the most frequent categories to keep",
    types=(dict, type(None)),
    default=None,
)


def _complete(column: pd.Series, operator: str) -> pd.Series:
    """Refuse missing values: no engine can give them a category."""
    if column.isna().any():
        raise InvalidRequest(
            f"{operator}: the column {column.name!r} has missing values; put SimpleImputer before it, "
            'with --params \'{"SimpleImputer": {"strategy": "most_frequent"}}\''
        )
    return column


def _categories(counts: Counter[Any], column: str, params: Params) -> list[Any]:
    kept = (params["max_categories"] or {}).get(column)
    return sorted(value for value, _ in counts.most_common(kept))


class OrdinalEncoder(Operator):
    """Each category becomes its number."""

    name = "OrdinalEncoder"
    about = "Categories as 0, 1, 2, …"
    kind = "text"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], _params: Params) -> pd.DataFrame:
        """Encode with scikit-learn."""
        from sklearn import preprocessing  # noqa: PLC0415 - a cluster does without it

        values = pd.DataFrame({name: _complete(frame[name], self.name) for name in columns})
        encoded = preprocessing.OrdinalEncoder(dtype=np.int64).fit_transform(values.to_numpy(dtype=object))
        return frame.assign(**dict(zip(columns, encoded.T, strict=True)))


class LabelEncoder(Operator):
    """One column of labels becomes numbers."""

    name = "LabelEncoder"
    about = "One column of labels as 0, 1, 2, …"
    kind = "text"

    def on_ray(self, columns: Sequence[str], _params: Params) -> Any:
        """Return Ray's encoder, which takes a single column under another parameter name."""
        from ray.data import preprocessors  # noqa: PLC0415 - the pandas engine does without Ray

        return preprocessors.LabelEncoder(label_column=self._one(columns))

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], _params: Params) -> pd.DataFrame:
        """Encode with scikit-learn."""
        from sklearn import preprocessing  # noqa: PLC0415 - a cluster does without it

        label = self._one(columns)
        values = _complete(frame[label], self.name).to_numpy(dtype=object)
        return frame.assign(**{label: preprocessing.LabelEncoder().fit_transform(values)})

    def _one(self, columns: Sequence[str]) -> str:
        if len(columns) != 1:
            raise InvalidRequest(
                f"LabelEncoder takes one column, not {', '.join(columns)}; name it with --params "
                f'\'{{"LabelEncoder": {{"columns": ["{columns[-1]}"]}}}}\''
            )
        return columns[0]


class OneHotEncoder(Operator):
    """Each category becomes a vector with a single 1."""

    name = "OneHotEncoder"
    about = "Categories as vectors with a single 1."
    kind = "text"
    parameters: ClassVar = {"max_categories": _MAX_CATEGORIES}

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Encode with scikit-learn; a category that was not kept is a vector of zeros."""
        from sklearn import preprocessing  # noqa: PLC0415 - a cluster does without it

        encoded = {}
        for name in columns:
            values = _complete(frame[name], self.name).to_numpy(dtype=object)
            kept = _categories(Counter(values), name, params)
            encoder = preprocessing.OneHotEncoder(
                categories=[kept], handle_unknown="ignore", sparse_output=False, dtype=np.uint8
            )
            encoded[name] = encoder.fit_transform(values.reshape(-1, 1)).tolist()
        return replaced(frame, encoded)


class MultiHotEncoder(Operator):
    """Each list becomes a vector that counts the categories in it."""

    name = "MultiHotEncoder"
    about = "Lists (of Tokenizer, or of the input) as vectors of counts."
    kind = "list"
    parameters: ClassVar = {"max_categories": _MAX_CATEGORIES}

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Count the sorted categories in each list."""
        encoded = {}
        for name in columns:
            counts = [Counter(items) for items in _complete(frame[name], self.name)]
            categories = _categories(sum(counts, Counter()), name, params)
            encoded[name] = [[count[category] for category in categories] for count in counts]
        return replaced(frame, encoded)


FAMILY = (OrdinalEncoder(), LabelEncoder(), OneHotEncoder(), MultiHotEncoder())
