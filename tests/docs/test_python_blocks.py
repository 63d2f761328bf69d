"""Every program that the documents show compiles, imports what exists, and calls it as it can be called."""

import ast
import importlib
import inspect

import pytest
from tests.support.pages import Block, blocks

import ray_multicluster_scheduler

PROGRAMS = blocks("python")


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_every_import_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_every_call_of_ours_has_arguments_that_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = getattr(ray_multicluster_scheduler, node.func.id, None)
            if function is not None:
                names = {keyword.arg: None for keyword in node.keywords if keyword.arg}
                inspect.signature(function).bind(*node.args, **names)
