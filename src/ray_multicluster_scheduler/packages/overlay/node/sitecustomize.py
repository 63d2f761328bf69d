"""Python imports this at its start, from the overlay's directory on PYTHONPATH; then the one it hides."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import raymc_overlay  # type: ignore[import-not-found]  # beside this file, where it runs

raymc_overlay.at_start()

_here = Path(__file__).resolve().parent
_hidden = PathFinder.find_spec("sitecustomize", [path for path in sys.path if Path(path).resolve() != _here])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
