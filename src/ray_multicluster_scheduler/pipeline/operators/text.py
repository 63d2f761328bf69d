"""Operators on text: words, split at single spaces, and vectors that count them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pandas as pd

from ray_multicluster_scheduler.pipeline.operators.base import Operator, Parameter, Params, replaced
from ray_multicluster_scheduler.pipeline.operators.vectors import bucket


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


FAMILY = (Tokenizer(), CountVectorizer(), HashingVectorizer())
