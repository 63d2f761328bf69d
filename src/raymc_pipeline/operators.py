"""The operators of pipelines: a name, parameters, and an implementation for each engine."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.text import did_you_mean

# The base class of operators: a name, parameters, and an implementation for each engine.


#: The kinds of columns that operators distinguish.
Kind = Literal["numeric", "text", "list", "any"]
Schema = Mapping[str, Kind]
Params = Mapping[str, Any]

REQUIRED = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of an operator; without a default it must be given."""

    about: str
    types: tuple[type, ...]
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Tell whether the parameter has no default."""
        return self.default is REQUIRED


class Operator(ABC):
    """One preprocessing step. Both engines give the same numbers for it, up to rounding."""

    name: ClassVar[str]
    about: ClassVar[str]
    kind: ClassVar[Kind]
    parameters: ClassVar[Mapping[str, Parameter]] = {}

    def kind_for(self, _params: Params) -> Kind:
        """Return the kind of columns that it uses if none are named."""
        return self.kind

    def on_ray(self, columns: Sequence[str], params: Params) -> Any:
        """Return Ray Data's preprocessor of the same name."""
        from ray.data import preprocessors  # noqa: PLC0415 - the pandas engine does without Ray

        return getattr(preprocessors, self.name)(columns=list(columns), **params)

    @abstractmethod
    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Return a new frame with the columns replaced."""


def replaced(frame: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a copy of `frame` with these columns replaced."""
    return frame.assign(
        **{name: pd.Series(list(values), index=frame.index) for name, values in columns.items()}
    )


# Scalers: numbers to comparable ranges.


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


SCALERS = (StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler(), SimpleImputer())


# Operators on rows of numbers: norms, powers, one vector of several columns.


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


VECTORS = (Normalizer(), PowerTransformer(), Concatenator(), FeatureHasher())


# Discretizers: replace numbers by the index of their bin, as in `pandas.cut`.


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


BINS = (UniformKBinsDiscretizer(), CustomKBinsDiscretizer())


# Encoders: categories to numbers, in the order of the sorted categories.


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


ENCODERS = (OrdinalEncoder(), LabelEncoder(), OneHotEncoder(), MultiHotEncoder())


# Operators on text: words, split at single spaces, and vectors that count them.


def _per_text(column: pd.Series, work: Callable[[list[str]], Any]) -> list[Any]:
    """Apply `work` to the words of each text; missing values stay missing."""
    return [None if pd.isna(text) else work(text.split(" ")) for text in column]


class Tokenizer(Operator):
    """Each text becomes the list of its words."""

    name = "Tokenizer"
    about = "Text as the list of its words."
    kind = "text"

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], _params: Params) -> pd.DataFrame:
        """Split at spaces."""
        return replaced(frame, {name: _per_text(frame[name], lambda words: words) for name in columns})


class CountVectorizer(Operator):
    """Each text becomes counts of the words of the whole column, the most frequent word first."""

    name = "CountVectorizer"
    about = "Text as counts of the column's words, the most frequent first."
    kind = "text"
    parameters: ClassVar = {
        "max_features": Parameter(
            about="how many of the most frequent words to keep", types=(int, type(None)), default=None
        )
    }

    def on_ray(self, columns: Sequence[str], params: Params) -> Any:
        """Count in Ray's frame; its own preprocessor leaves gaps where a text lacks a word (Ray 2.60)."""
        from ray.data.preprocessor import Preprocessor  # noqa: PLC0415 - the pandas engine does without Ray

        # Local, so that it travels by value: workers need not have this package. So do the helpers.
        def count(texts: Any) -> list[Any]:
            return [None if pd.isna(text) else Counter(text.split(" ")) for text in texts]

        def summed(batch: dict[str, Any]) -> dict[str, list[str]]:
            totals: dict[str, Counter[str]] = {
                name: sum((each for each in count(batch[name]) if each), Counter()) for name in columns
            }
            return {name: [json.dumps(total)] for name, total in totals.items()}

        class Counting(Preprocessor):  # type: ignore[misc]
            def _fit(self, dataset: Any) -> Any:
                totals: dict[str, Counter[str]] = {name: Counter() for name in columns}
                for row in dataset.map_batches(summed, batch_size=None).iter_rows():
                    for name, total in totals.items():
                        total.update(json.loads(row[name]))
                limit = params["max_features"]
                self.stats_ = {
                    name: [word for word, _ in total.most_common(limit)] for name, total in totals.items()
                }
                return self

            def _transform_numpy(self, batch: dict[str, Any]) -> dict[str, Any]:
                for name, words in self.stats_.items():
                    counts = count(batch[name])
                    batch[name] = [each and [each[word] for word in words] for each in counts]
                return batch

        return Counting()

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Count twice: over the column for the order, in each text for the vector."""
        counted = {}
        for name in columns:
            counts = _per_text(frame[name], Counter)
            total: Counter[str] = Counter()
            for count in counts:
                total.update(count or {})
            words = [word for word, _ in total.most_common(params["max_features"])]
            counted[name] = [None if count is None else [count[word] for word in words] for count in counts]
        return replaced(frame, counted)


class HashingVectorizer(Operator):
    """Each text becomes counts of its words in a fixed number of buckets."""

    name = "HashingVectorizer"
    about = "Text as counts of its words in a fixed number of buckets, by their hash."
    kind = "text"
    parameters: ClassVar = {"num_features": Parameter(about="how many buckets", types=(int,))}

    def on_pandas(self, frame: pd.DataFrame, columns: Sequence[str], params: Params) -> pd.DataFrame:
        """Count the buckets of each text."""
        buckets = params["num_features"]

        def vector(words: list[str]) -> list[int]:
            counts = Counter(bucket(word, buckets) for word in words)
            return [counts[each] for each in range(buckets)]

        return replaced(frame, {name: _per_text(frame[name], vector) for name in columns})


TEXT = (Tokenizer(), CountVectorizer(), HashingVectorizer())


# All operators by name.


OPERATORS: Mapping[str, Operator] = {
    operator.name: operator for operator in (*SCALERS, *VECTORS, *BINS, *ENCODERS, *TEXT)
}


def find_operator(name: str) -> Operator:
    """Return an operator; the error for an unknown name suggests a similar one."""
    if name not in OPERATORS:
        raise InvalidRequest(
            f"no operator is called {name!r}; {did_you_mean(name, OPERATORS)} "
            "(`raymc pipeline list` shows all)"
        )
    return OPERATORS[name]
