"""Environments that no longer depend on the submitter's machine."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.trees import a_store, make_tree, names_in

from ray_multicluster_scheduler.errors import InvalidRuntimeEnv, PackageProblem
from ray_multicluster_scheduler.packages.runtime_env import localise, package_names, read_yaml


def test_a_working_dir_becomes_a_package_and_excludes_has_done_its_work(tmp_path: Path) -> None:
    make_tree(tmp_path / "code", {"main.py": "", "a.log": "", "src/x.py": ""})
    store = a_store(tmp_path)
    env = {"working_dir": "./code", "excludes": ["*.log"], "env_vars": {"A": "1"}}
    result = localise(env, store, cwd=tmp_path)
    assert result.keys() == {"working_dir", "env_vars"}
    assert names_in(store, result["working_dir"]) == ["main.py", "src/x.py"]
    assert env == {"working_dir": "./code", "excludes": ["*.log"], "env_vars": {"A": "1"}}


def test_a_tilde_is_the_submitters_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make_tree(tmp_path / "code", {"main.py": ""})
    store = a_store(tmp_path)
    result = localise({"working_dir": "~/code"}, store, cwd=Path("/"))
    assert names_in(store, result["working_dir"]) == ["main.py"]


def test_what_nobody_wants_to_send_stays_behind_unless_it_is_brought_back(tmp_path: Path) -> None:
    junk = {".git/HEAD": "", ".venv/x": "", "venv/x": "", "a/__pycache__/b.pyc": ""}
    make_tree(tmp_path / "code", {**junk, "a/b.py": ""})
    store = a_store(tmp_path)
    result = localise({"working_dir": "code"}, store, cwd=tmp_path)
    assert names_in(store, result["working_dir"]) == ["a/b.py"]
    result = localise({"working_dir": "code", "excludes": ["!venv"]}, store, cwd=tmp_path)
    assert names_in(store, result["working_dir"]) == ["a/b.py", "venv/x"]


def test_gitignore_counts_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    make_tree(tmp_path / "code", {".gitignore": "*.csv", "a.csv": ""})
    store = a_store(tmp_path)
    result = localise({"working_dir": "code"}, store, cwd=tmp_path)
    assert names_in(store, result["working_dir"]) == [".gitignore"]
    result = localise({"working_dir": "code"}, store, cwd=tmp_path, use_gitignore=False)
    assert names_in(store, result["working_dir"]) == [".gitignore", "a.csv"]


def test_py_modules_keep_their_name_so_that_they_can_be_imported(tmp_path: Path) -> None:
    make_tree(tmp_path / "libs", {"pkg/__init__.py": "", "pkg/venv/x.py": "", "tool.py": ""})
    store = a_store(tmp_path)
    env = {"py_modules": ["libs/pkg", "libs/tool.py", "libs/pkg/../pkg/"]}
    modules = localise(env, store, cwd=tmp_path)["py_modules"]
    assert [names_in(store, uri) for uri in modules[:2]] == [
        ["pkg/__init__.py", "pkg/venv/x.py"],
        ["tool.py"],
    ]
    assert modules[2] == modules[0]


def test_a_linked_module_goes_by_the_name_of_the_link(tmp_path: Path) -> None:
    make_tree(tmp_path / "pkg-1.2", {"__init__.py": ""})
    (tmp_path / "pkg").symlink_to("pkg-1.2")
    store = a_store(tmp_path)
    (uri,) = localise({"py_modules": ["pkg"]}, store, cwd=tmp_path)["py_modules"]
    assert names_in(store, uri) == ["pkg/__init__.py"]


@pytest.mark.parametrize(
    "env",
    [
        {"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"},
        {"working_dir": "s3://bucket/code.zip"},
        {"working_dir": "https://example.org/code.zip"},
        {"working_dir": "local:///opt/code"},
        {"py_modules": ["gs://bucket/pkg.zip", "https://example.org/pkg-1.0-py3-none-any.whl"]},
        {"conda": "my_env"},
        {"pip": ["pandas==1.5.3"]},
        {},
    ],
)
def test_what_a_cluster_can_use_already_stays_as_it_is(tmp_path: Path, env: dict[str, Any]) -> None:
    assert localise(env, a_store(tmp_path), cwd=tmp_path) == env


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"working_dir": "missing"}, "missing cannot be packed: No such file"),
        ({"working_dir": "main.py"}, r"main\.py is a file; give its directory"),
        ({"py_modules": ["notes.txt"]}, r"notes\.txt is not a directory"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_submit(tmp_path: Path, env: dict[str, Any], message: str) -> None:
    make_tree(tmp_path, {"main.py": "", "notes.txt": ""})
    with pytest.raises(PackageProblem, match=message):
        localise(env, a_store(tmp_path), cwd=tmp_path)


def test_requirement_files_are_sent_as_their_content(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "requirements.txt": "# ours\nnumpy==1.26  # pinned\n-r more/base.txt\n-r https://example.org/r.txt\n",
            "more/base.txt": "--requirement=deep.txt\nscipy>=1.10\n-e git+https://example.org/x.git#egg=x\n",
            "more/deep.txt": "six\n",
        },
    )
    for option in ("pip", "uv"):
        assert localise({option: "requirements.txt"}, a_store(tmp_path), cwd=tmp_path)[option] == [
            "numpy==1.26",
            "six",
            "scipy>=1.10",
            "-e git+https://example.org/x.git#egg=x",
            "-r https://example.org/r.txt",
        ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-r requirements.txt", "includes itself"),
        ("-r missing.txt", r"missing\.txt cannot be read: No such file"),
        ("-c pins.txt", r"'-c pins\.txt' names a file of this machine"),
        ("six\n  -e .", "'-e .' names a file of this machine"),
        ("../lib", "'../lib' names a file of this machine"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_requirement_file_that_would_only_fail_on_the_cluster_is_refused(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    make_tree(tmp_path, {"requirements.txt": text})
    with pytest.raises(InvalidRuntimeEnv, match=message):
        localise({"pip": "requirements.txt"}, a_store(tmp_path), cwd=tmp_path)


def test_conda_files_are_sent_as_their_content(tmp_path: Path) -> None:
    make_tree(
        tmp_path, {"env.yml": "name: x\ndependencies: [python=3.10, {pip: [six]}]\n", "bad.yaml": "a: ["}
    )
    wanted = {"name": "x", "dependencies": ["python=3.10", {"pip": ["six"]}]}
    store = a_store(tmp_path)
    assert localise({"conda": "env.yml"}, store, cwd=tmp_path) == {"conda": wanted}
    assert localise({"conda": {"conda_env_file": "env.yml"}}, store, cwd=tmp_path) == {"conda": wanted}
    with pytest.raises(InvalidRuntimeEnv, match="is not valid YAML"):
        localise({"conda": "bad.yaml"}, store, cwd=tmp_path)


def test_the_packages_of_an_environment_are_its_gcs_uris_each_once() -> None:
    env = {
        "working_dir": "gcs://one.zip",
        "py_modules": ["gcs://two.whl", "s3://bucket/three.zip", "gcs://one.zip"],
    }
    assert package_names(env) == ("one.zip", "two.whl")
    assert package_names({}) == ()


BILLION = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BILLION, "aliases unfold to more than"),
        ("pip: [a]\npip: [b]\n", "line 2: pip: the key is written twice"),
        ("a: !!python/object/apply:os.getcwd []\n", "tags"),
        ("a: [", "is not valid YAML: line 1"),
    ],
)
def test_a_yaml_file_is_read_as_safely_as_the_configuration(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "env.yaml").write_text(text)
    with pytest.raises(InvalidRuntimeEnv, match=said):
        read_yaml(tmp_path / "env.yaml")


def test_variables_in_a_yaml_file_stay_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("env_vars: {VERSION: 1.10, OFF: no}\n")
    assert read_yaml(tmp_path / "env.yaml") == {"env_vars": {"VERSION": "1.10", "OFF": "no"}}
