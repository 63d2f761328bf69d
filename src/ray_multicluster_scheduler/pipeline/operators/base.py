"""The base class of operators: a name, parameters, and an implementation for each engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pandas as pd

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
