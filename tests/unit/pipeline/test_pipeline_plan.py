"""A pipeline is checked before anything is read."""

from typing import Any

import pytest

from ray_multicluster_scheduler.errors import InvalidRequest
from raymc_pipeline.operators import OPERATORS, Schema
from raymc_pipeline.plan import Plan, check_columns, choose_columns, make_plan

SCHEMA: Schema = {"age": "numeric", "city": "text", "note": "text", "tags": "list", "alive": "any"}


def chosen(plan: Plan) -> list[str]:
    return choose_columns(plan, plan.steps[0], SCHEMA)


@pytest.mark.parametrize(
    ("operators", "params", "words"),
    [
        ([], {}, "a pipeline needs an operator"),
        (["StandardScale"], {}, "no operator is called 'StandardScale'; did you mean 'StandardScaler'?"),
        (["PowerTransformer"], {}, "PowerTransformer needs power"),
        (["PowerTransformer"], {"PowerTransformer": {"power": "2"}}, "power must be int or float, not '2'"),
        (["PowerTransformer"], {"PowerTransformer": {"power": True}}, "power must be int or float, not True"),
        (["Normalizer"], {"Normalizer": {"norm": "l3"}}, "norm is one of l1, l2, max, not 'l3'"),
        (["Normalizer"], {"Normalizer": {"nom": "l1"}}, "has no parameter 'nom'; did you mean 'norm'?"),
        (["Normalizer"], {"Normalizer": "l1"}, "Normalizer needs a mapping"),
        (["Normalizer"], {"Tokenizer": {}}, "'Tokenizer' is not among the operators"),
        (["Normalizer"], {"Normalizer": {"columns": "a"}}, "columns must be a list"),
        (["Normalizer"], {"Normalizer": {"columns": []}}, "the list of columns is empty"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(
    operators: list[str], params: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_plan(operators, "x.csv", params=params)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("operator", "params", "columns"),
    [
        ("StandardScaler", {}, ["age"]),
        ("OneHotEncoder", {}, ["city", "note"]),
        ("MultiHotEncoder", {}, ["tags"]),
        ("SimpleImputer", {}, ["age"]),
        ("SimpleImputer", {"strategy": "most_frequent"}, list(SCHEMA)),
        ("LabelEncoder", {"columns": ["age"]}, ["age"]),
    ],
)
def test_an_operator_takes_its_own_columns_or_those_of_its_kind(
    operator: str, params: dict[str, Any], columns: list[str]
) -> None:
    assert chosen(make_plan([operator], "x.csv", params={operator: params})) == columns


def test_named_columns_limit_what_an_operator_chooses_from() -> None:
    assert chosen(make_plan(["OneHotEncoder"], "x.csv", columns=["age", "note"])) == ["note"]


def test_an_operator_without_a_column_to_work_on_says_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match=r"StandardScaler: no number column.*there is city \(text\)"):
        chosen(make_plan(["StandardScaler"], "x.csv", columns=["city"]))


def test_a_column_of_the_wrong_kind_or_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the column 'city' holds text, but the operator needs numeric"):
        chosen(make_plan(["StandardScaler"], "x.csv", params={"StandardScaler": {"columns": ["city"]}}))
    with pytest.raises(InvalidRequest, match="no column is called 'agee'; did you mean 'age'"):
        check_columns(make_plan(["StandardScaler"], "x.csv", columns=["agee"]), SCHEMA)


def test_a_plan_survives_the_way_to_a_cluster() -> None:
    params = {"PowerTransformer": {"power": 0.5, "columns": ["a", "b"]}}
    plan = make_plan(["SimpleImputer", "PowerTransformer"], "s3://b/x.csv", output="o.csv", params=params)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_explains_itself_and_exists_in_ray(name: str) -> None:
    from ray.data import preprocessors

    assert hasattr(preprocessors, name)
    assert OPERATORS[name].about.endswith((".", "…"))
    assert all(parameter.about for parameter in OPERATORS[name].parameters.values())
