"""Operators on numbers, against the definition of scikit-learn, SciPy or pandas."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from numpy.testing import assert_allclose
from scipy import stats
from sklearn import preprocessing
from tests.unit.pipeline.frames import NUMBERS, columns_of, on_pandas

from ray_multicluster_scheduler.errors import InvalidRequest

FRAMES = columns_of(NUMBERS)


@given(FRAMES)
def test_a_standard_scaled_column_has_mean_zero_and_deviation_one(frame: pd.DataFrame) -> None:
    scaled = on_pandas("StandardScaler", frame)
    for name in frame:
        assert scaled[name].mean() == pytest.approx(0, abs=1e-9)
        spread = 0 if frame[name].nunique() == 1 else 1
        assert scaled[name].std(ddof=0) == pytest.approx(spread, abs=1e-9)


@given(FRAMES)
def test_a_min_max_scaled_column_goes_from_zero_to_one(frame: pd.DataFrame) -> None:
    scaled = on_pandas("MinMaxScaler", frame)
    for name in frame:
        assert scaled[name].min() == pytest.approx(0, abs=1e-9)
        assert scaled[name].max() == pytest.approx(0 if frame[name].nunique() == 1 else 1)
        assert scaled[name].argmax() == frame[name].argmax()


@given(FRAMES)
def test_max_abs_scaling_keeps_the_ratios(frame: pd.DataFrame) -> None:
    scaled = on_pandas("MaxAbsScaler", frame)
    for name in frame:
        assert_allclose(scaled[name] * max(frame[name].abs().max(), 1e-300), frame[name], atol=1e-9)


@given(FRAMES)
def test_robust_scaling_is_that_of_scikit_learn_where_there_is_a_range(frame: pd.DataFrame) -> None:
    scaled = on_pandas("RobustScaler", frame)
    expected = preprocessing.RobustScaler().fit_transform(frame)
    for number, name in enumerate(frame):
        has_range = frame[name].quantile(0.75) > frame[name].quantile(0.25)
        assert_allclose(scaled[name], expected[:, number] if has_range else 0, atol=1e-9)


@pytest.mark.parametrize("wrong", [[0.5], [0.9, 0.1], [-1, 2], ["a", "b"]])
def test_a_quantile_range_that_is_none_is_refused(wrong: list[object]) -> None:
    with pytest.raises(InvalidRequest, match="quantile_range"):
        on_pandas("RobustScaler", pd.DataFrame({"a": [1.0, 2.0]}), quantile_range=wrong)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@given(frame=FRAMES)
def test_rows_are_normalised_as_scikit_learn_does_but_zeros_have_no_direction(
    frame: pd.DataFrame, norm: str
) -> None:
    rows = on_pandas("Normalizer", frame, norm=norm).to_numpy()
    expected = preprocessing.normalize(frame.to_numpy(), norm=norm)
    zeros = (frame == 0).all(axis=1).to_numpy()
    assert_allclose(rows[~zeros], expected[~zeros], atol=1e-9)
    assert np.isnan(rows[zeros]).all()


@pytest.mark.parametrize("power", [-1, 0, 0.5, 2, 3])
@given(frame=FRAMES)
def test_yeo_johnson_is_that_of_scipy(frame: pd.DataFrame, power: float) -> None:
    transformed = on_pandas("PowerTransformer", frame, power=power)
    for name in frame:
        assert_allclose(transformed[name], stats.yeojohnson(frame[name].to_numpy(), power), rtol=1e-9)


@given(columns_of(NUMBERS.map(lambda number: abs(number) + 1)))
def test_box_cox_is_that_of_scipy(frame: pd.DataFrame) -> None:
    transformed = on_pandas("PowerTransformer", frame, power=0.5, method="box-cox")
    for name in frame:
        assert_allclose(transformed[name], stats.boxcox(frame[name].to_numpy(), 0.5), rtol=1e-9)


@given(FRAMES)
def test_every_number_gets_one_of_the_uniform_bins(frame: pd.DataFrame) -> None:
    binned = on_pandas("UniformKBinsDiscretizer", frame, bins=4)
    for name in frame:
        assert binned[name].between(0, 3).all()
        # A larger number is never in a lower bin.
        assert binned[name].iloc[frame[name].argsort()].is_monotonic_increasing


def test_a_number_outside_of_the_given_edges_has_no_bin() -> None:
    binned = on_pandas("CustomKBinsDiscretizer", pd.DataFrame({"a": [0, 1, 5, 11]}), bins=[0, 1, 10])
    assert binned["a"].fillna(-1).tolist() == [-1, 0, 1, -1]


@given(FRAMES)
def test_the_concatenated_vectors_hold_the_rows(frame: pd.DataFrame) -> None:
    joined = on_pandas("Concatenator", frame, output_column_name="v")
    assert list(joined.columns) == ["v"]
    assert_allclose(np.stack(joined["v"].to_list()), frame.to_numpy())


@given(columns_of(NUMBERS, names="abcde"))
def test_hashed_features_lose_no_sum(frame: pd.DataFrame) -> None:
    hashed = on_pandas("FeatureHasher", frame, num_features=3)
    assert_allclose(np.stack(hashed["hashed"].to_list()).sum(axis=1), frame.sum(axis=1), atol=1e-9)


@given(columns_of(NUMBERS), columns_of(NUMBERS))
def test_missing_numbers_become_the_mean_of_the_others(seen: pd.DataFrame, more: pd.DataFrame) -> None:
    gaps = pd.concat([seen, more * np.nan], ignore_index=True)
    filled = on_pandas("SimpleImputer", gaps)
    for name in seen:
        assert_allclose(filled[name][len(seen) :], seen[name].mean(), atol=1e-9)
        assert_allclose(filled[name][: len(seen)], seen[name])


def test_missing_words_become_the_most_frequent_or_a_constant() -> None:
    frame = pd.DataFrame({"a": ["x", None, "y", "y"]})
    assert on_pandas("SimpleImputer", frame, strategy="most_frequent")["a"][1] == "y"
    assert on_pandas("SimpleImputer", frame, strategy="constant", fill_value="?")["a"][1] == "?"
    with pytest.raises(InvalidRequest, match="needs a fill_value"):
        on_pandas("SimpleImputer", frame, strategy="constant")


def test_an_operator_leaves_its_input_alone() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    on_pandas("StandardScaler", frame)
    assert frame["a"].tolist() == [1.0, 2.0]
