"""Frames for the tests of both engines."""

from typing import Any

import pandas as pd
from hypothesis import strategies as st

from raymc_pipeline.operators import find_operator
from raymc_pipeline.plan import Step, make_plan

#: Two digits after the point: what scikit-learn and Ray call "constant" differs for tiny spreads.
NUMBERS = st.integers(-100_000, 100_000).map(lambda hundredths: hundredths / 100)


def columns_of(elements: st.SearchStrategy[Any], *, names: str = "ab") -> st.SearchStrategy[pd.DataFrame]:
    """Frames with these columns and between 2 and 30 rows."""
    row = st.tuples(*(elements for _ in names))
    return st.lists(row, min_size=2, max_size=30).map(lambda rows: pd.DataFrame(rows, columns=list(names)))


def a_step(name: str, **params: Any) -> Step:
    return make_plan([name], "x.csv", params={name: params}).steps[0]


def on_pandas(name: str, frame: pd.DataFrame, **params: Any) -> pd.DataFrame:
    """Apply one operator to all columns of a frame."""
    step = a_step(name, **params)
    return find_operator(name).on_pandas(frame, list(frame.columns), step.params)
