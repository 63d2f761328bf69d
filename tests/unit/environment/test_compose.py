"""The environment of the target, always: the cluster's, the job's over it, and nothing else."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_multicluster_scheduler.environment.compose import compose, normalise
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

PROJECTS = ("Fund", "tools", "rlops", "mlops", "ray_multicluster_scheduler")
WHO = {
    "RAY_MULTICLUSTER_CLUSTER": "centos",
    "RAY_MULTICLUSTER_SUBMISSION_ID": "1700000000000",
    "RAY_MULTICLUSTER_ATTEMPT": "1",
}


def a_home_env(conda: str, home: str) -> dict[str, Any]:
    """The environment of one cluster in the report of a mixed-up placement, as it stands in its YAML."""
    lines = "".join(f"{home}project/pycharm/{project}:\n" for project in PROJECTS)
    return {"conda": conda, "env_vars": {"home_dir": home, "PYTHONPATH": f"{lines}${{PYTHONPATH}}\n"}}


def composed_home_env(conda: str, home: str) -> dict[str, Any]:
    paths = [f"{home}project/pycharm/{project}" for project in PROJECTS]
    return {"conda": conda, "env_vars": {"home_dir": home, "PYTHONPATH": ":".join([*paths, "${PYTHONPATH}"])}}


CENTOS = a_home_env("ts", "/home/zorro/")
MAC = a_home_env("k8s", "/Users/zorro/")
CPU_CLUSTER = {"pip": ["numpy", "pandas"], "env_vars": ["PYTHONPATH=/opt/code"]}
FULL_EXAMPLE = {
    "pip": ["pandas==1.5.3", "scikit-learn==1.2.0", "numpy>=1.20.0"],
    "env_vars": {"PYTHONPATH": "/home/user/project/src", "OMP_NUM_THREADS": "4"},
    "working_dir": "/home/user/project",
    "excludes": ["*.pyc", "__pycache__", "*.log", "data/"],
}
GPU_CLUSTER = {"pip": ["torch", "torchvision"], "conda": {"dependencies": ["cudatoolkit=11.7"]}}


def norm(runtime_env: Any, **arguments: Any) -> dict[str, Any]:
    return normalise(runtime_env, where="runtime_env", **arguments)


def plain_compose(cluster: Any, job: Any) -> dict[str, Any]:
    return compose(cluster, job, identity={})


class TestComposition:
    @pytest.mark.parametrize(
        ("cluster", "expected"),
        [
            (CENTOS, composed_home_env("ts", "/home/zorro/")),
            (MAC, composed_home_env("k8s", "/Users/zorro/")),
            (CPU_CLUSTER, {"pip": ["numpy", "pandas"], "env_vars": {"PYTHONPATH": "/opt/code"}}),
            (
                GPU_CLUSTER,
                {"conda": {"dependencies": ["cudatoolkit=11.7", {"pip": ["torch", "torchvision"]}]}},
            ),
        ],
        ids=["centos", "mac", "cpu_cluster", "gpu_cluster"],
    )
    def test_a_job_without_its_own_gets_exactly_its_clusters_environment(
        self, cluster: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        assert plain_compose(cluster, None) == expected

    def test_the_job_knows_where_it_runs_and_which_attempt_it_is(self) -> None:
        expected = composed_home_env("ts", "/home/zorro/")
        expected["env_vars"] |= WHO
        assert compose(CENTOS, None, identity=WHO) == expected

    def test_the_jobs_variables_lie_over_the_clusters(self) -> None:
        composed = plain_compose({"env_vars": {"A": "1", "B": "2"}}, {"env_vars": {"B": "3", "C": "4"}})
        assert composed == {"env_vars": {"A": "1", "B": "3", "C": "4"}}

    @pytest.mark.parametrize(
        ("cluster", "expected"),
        [
            ("/opt/code", "/home/user/code:/opt/code"),
            ("/opt/code:${PYTHONPATH}", "/home/user/code:/opt/code:${PYTHONPATH}"),
            (None, "/home/user/code:${PYTHONPATH}"),
        ],
    )
    def test_a_jobs_pythonpath_can_extend_the_clusters(self, cluster: str | None, expected: str) -> None:
        cluster_env = {"env_vars": {"PYTHONPATH": cluster}} if cluster else {}
        composed = plain_compose(cluster_env, {"env_vars": {"PYTHONPATH": "/home/user/code:$PYTHONPATH"}})
        assert composed["env_vars"]["PYTHONPATH"] == expected

    def test_a_jobs_pythonpath_without_the_reference_replaces_the_clusters(self) -> None:
        composed = plain_compose(CPU_CLUSTER, {"env_vars": {"PYTHONPATH": "/mine"}})
        assert composed["env_vars"]["PYTHONPATH"] == "/mine"

    def test_config_merges_by_key(self) -> None:
        cluster = {"config": {"setup_timeout_seconds": 60, "eager_install": False}}
        assert plain_compose(cluster, {"config": {"setup_timeout_seconds": 90}}) == {
            "config": {"setup_timeout_seconds": 90, "eager_install": False}
        }

    def test_packages_merge_by_name_and_the_jobs_version_wins(self) -> None:
        cluster = {"pip": ["--extra-index-url https://one/simple", "Scikit_Learn==1.1", "numpy"]}
        job = {"pip": ["--extra-index-url https://two/simple", "scikit-learn==1.2.0"]}
        assert plain_compose(cluster, job)["pip"] == [
            "--extra-index-url https://one/simple",
            "numpy",
            "--extra-index-url https://two/simple",
            "scikit-learn==1.2.0",
        ]

    @pytest.mark.parametrize(
        ("cluster", "job", "expected"),
        [
            # the installer: packages of both, the job's tool, options by key
            ({"uv": ["a"]}, {"pip": ["b"]}, {"pip": ["a", "b"]}),
            ({"pip": {"packages": ["a"], "pip_check": True}}, {"uv": ["b"]}, {"uv": ["a", "b"]}),
            (
                {"pip": {"packages": ["a"], "pip_check": True}},
                {"pip": {"packages": ["b"], "pip_version": "==24"}},
                {"pip": {"packages": ["a", "b"], "pip_check": True, "pip_version": "==24"}},
            ),
            # a conda mapping takes packages in, whoever brings them
            (
                {"conda": {"dependencies": ["x", {"pip": ["a==1", "b"]}]}},
                {"pip": ["a==2"]},
                {"conda": {"dependencies": ["x", {"pip": ["b", "a==2"]}]}},
            ),
            (
                {"pip": {"packages": ["a==1", "b"], "pip_check": True}},
                {"conda": {"dependencies": ["x", {"pip": ["a==2"]}]}},
                {"conda": {"dependencies": ["x", {"pip": ["b", "a==2"]}]}},
            ),
            (
                {"conda": {"dependencies": ["x"]}},
                {"conda": {"channels": ["c"]}},
                {"conda": {"channels": ["c"]}},
            ),
            (
                GPU_CLUSTER,
                {"pip": ["torch==2.0.0"], "conda": {"dependencies": ["python=3.9"]}},
                {"conda": {"dependencies": ["python=3.9", {"pip": ["torchvision", "torch==2.0.0"]}]}},
            ),
            (
                {"conda": {"dependencies": ["x"]}},
                {"pip": {"packages": ["a"], "pip_check": False}},
                {"conda": {"dependencies": ["x", {"pip": ["a"]}]}},
            ),
            # a job that names its conda environment brings all its packages
            (CPU_CLUSTER, {"conda": "mine"}, {"conda": "mine", "env_vars": {"PYTHONPATH": "/opt/code"}}),
            (GPU_CLUSTER, {"conda": "mine"}, {"conda": "mine"}),
            ({"conda": "ts"}, {"conda": "mine"}, {"conda": "mine"}),
            ({"conda": "ts"}, {"conda": {"dependencies": ["x"]}}, {"conda": {"dependencies": ["x"]}}),
            ({"py_executable": "python3.11"}, {"conda": "mine"}, {"conda": "mine"}),
            # an image is a whole machine
            (
                {"conda": "ts", "env_vars": {"A": "1"}},
                {"image_uri": "i"},
                {"image_uri": "i", "env_vars": {"A": "1"}},
            ),
            ({"working_dir": "s3://b/c.zip"}, {"container": {"image": "i"}}, {"container": {"image": "i"}}),
            ({"image_uri": "i"}, {"container": {"image": "j"}}, {"container": {"image": "j"}}),
            (
                {"image_uri": "i"},
                {"conda": "mine", "working_dir": "/w"},
                {"conda": "mine", "working_dir": "/w"},
            ),
            # everything else: the job's value
            (
                {"working_dir": "local:///cluster", "excludes": ["a"], "py_modules": ["gcs://m.zip"]},
                {"working_dir": "/job", "excludes": ["b"]},
                {"working_dir": "/job", "excludes": ["b"], "py_modules": ["gcs://m.zip"]},
            ),
        ],
    )
    def test_each_row_of_the_table(
        self, cluster: dict[str, Any], job: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        assert plain_compose(cluster, job) == expected

    @pytest.mark.parametrize(
        ("cluster", "job", "said"),
        [
            (CENTOS, {"pip": ["pandas"]}, "pip cannot add packages to the conda environment 'ts'"),
            (CENTOS, {"uv": ["pandas"]}, "uv cannot add packages to the conda environment 'ts'"),
            ({"image_uri": "i"}, {"pip": ["a"]}, "image_uri brings its own Python and files"),
            ({"image_uri": "i"}, {"working_dir": "/w"}, "not working_dir"),
            (
                {"conda": {"dependencies": ["x"]}},
                {"pip": {"packages": ["a"], "pip_version": "==24"}},
                "pip_version: with a conda mapping",
            ),
        ],
    )
    def test_what_does_not_go_together_names_the_cluster(
        self, cluster: dict[str, Any], job: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(
            InvalidRuntimeEnv, match=f"^cluster 'centos' with this job's runtime_env: .*{said}"
        ):
            compose(cluster, job, identity=WHO)

    @pytest.mark.parametrize("cluster", [{"working_dir": "/code"}, {"py_modules": ["gcs://m.zip", "./m"]}])
    def test_a_cluster_cannot_send_a_directory_of_nobodys_machine(self, cluster: dict[str, Any]) -> None:
        with pytest.raises(
            InvalidRuntimeEnv, match=r"^the cluster: runtime_env: \w+: Ray takes no plain path"
        ):
            plain_compose(cluster, None)
        own = {"working_dir": "/mine", "py_modules": ["/mine"]}
        assert plain_compose(cluster, own) == own

    def test_a_broken_side_is_named(self) -> None:
        with pytest.raises(InvalidRuntimeEnv, match=r"^cluster 'centos': runtime_env: excludes: "):
            compose({"excludes": "x"}, None, identity=WHO)
        with pytest.raises(InvalidRuntimeEnv, match=r"^the job's runtime_env: excludes: "):
            compose(None, {"excludes": "x"}, identity=WHO)


class TestEveryExampleOfTheUserGuide:
    """The JSON blocks that users of this product have been given, in order."""

    @pytest.mark.parametrize(
        "env",
        [
            {"pip": ["pandas==1.5.3", "scikit-learn==1.2.0"], "env_vars": {"MY_VAR": "value"}},
            {"pip": ["pandas==1.5.3", "scikit-learn==1.2.0", "numpy>=1.20.0"]},
            {"conda": "my_env"},
            {
                "env_vars": {
                    "PYTHONPATH": "/path/to/code",
                    "CUDA_VISIBLE_DEVICES": "0,1",
                    "OMP_NUM_THREADS": "4",
                }
            },
            {"working_dir": "/path/to/your/code"},
            {"excludes": ["*.pyc", "__pycache__", "*.log"]},
            FULL_EXAMPLE,
            {"pip": ["pandas==1.5.3", "scikit-learn==1.2.0", "ray[data]==2.52.1"]},
            {"working_dir": "/home/user/ml-benchmark", "excludes": ["data/", "*.csv", "experiments/"]},
            {
                "pip": ["torch==2.0.0", "torchvision==0.15.0"],
                "env_vars": {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_DEBUG": "INFO"},
            },
            {
                "pip": ["pandas==1.5.3", "scikit-learn==1.2.0", "numpy>=1.20.0"],
                "env_vars": {"PYTHONPATH": "/shared/code"},
            },
        ],
    )
    def test_reaches_a_bare_cluster_unchanged(self, env: dict[str, Any]) -> None:
        assert plain_compose({}, env) == env

    def test_the_conda_file_form_means_the_environment_of_that_name(self) -> None:
        env = {"conda": {"conda_env_name": "my_env", "conda_env_file": "environment.yml"}}
        assert plain_compose({}, env) == {"conda": "my_env"}

    def test_the_mixed_configuration_is_refused_where_no_overlay_can_be_sent(self) -> None:
        env = {**FULL_EXAMPLE, "conda": "ml-env"}
        with pytest.raises(
            InvalidRuntimeEnv, match="conda environment 'ml-env': only jobs and pipelines can"
        ):
            plain_compose({}, env)


# -- Properties ------------------------------------------------------------------------------------------

#: A busy machine is no finding.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.sampled_from(["A", "B", "home_dir", "PATH", "PYTHONPATH"])
values = st.sampled_from(["", "1", "/a", "/a:/b", "/b:$PATH", "/c:\n${PYTHONPATH}", "$PYTHONPATH:/a"])
packages = st.lists(
    st.sampled_from(["a", "a==1", "A==2", "b>=1", "b_c", "B.C==3", "-r x.txt", "git+https://h/x"]),
    max_size=4,
)
condas = st.one_of(
    st.sampled_from(["ts", "k8s"]),
    st.fixed_dictionaries(
        {
            "dependencies": st.tuples(
                st.sampled_from(["x=1", "y"]), st.fixed_dictionaries({"pip": packages})
            ).map(list)
        }
    ),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "env_vars": st.dictionaries(names, values, max_size=4),
        "working_dir": st.sampled_from(["local:///w", "s3://bucket/code.zip"]),
        "excludes": st.lists(st.sampled_from(["*.log", "data/"]), max_size=2),
        "config": st.dictionaries(st.just("setup_timeout_seconds"), st.integers(1, 9)),
        "py_executable": st.sampled_from(["python3.10", "python3.11"]),
    },
)
pythons = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"pip": packages}),
    st.fixed_dictionaries({"uv": packages}),
    st.fixed_dictionaries({"conda": condas}),
    st.fixed_dictionaries({"conda": condas.filter(lambda c: isinstance(c, dict)), "pip": packages}),
)
envs = st.builds(lambda left, right: {**left, **right}, options, pythons)


def outcome(cluster: Any, job: Any, identity: dict[str, str] | None = None) -> Any:
    """What composing gives, a refusal included: both must depend on the arguments alone."""
    try:
        return compose(cluster, job, identity=identity or {})
    except InvalidRuntimeEnv as refusal:
        return str(refusal)


@patient
@given(envs)
def test_the_canonical_form_is_its_own_canonical_form(env: dict[str, Any]) -> None:
    assert norm(norm(env)) == norm(env)


@patient
@given(envs, envs, envs)
def test_composing_for_one_cluster_leaves_nothing_for_the_next(
    one: dict[str, Any], other: dict[str, Any], job: dict[str, Any]
) -> None:
    alone = outcome(copy.deepcopy(other), copy.deepcopy(job), WHO)
    outcome(one, job, WHO)
    assert outcome(other, job, WHO) == alone
    outcome(one, job, WHO)
    assert outcome(other, job, WHO) == alone


@patient
@given(envs, envs)
def test_inputs_are_never_changed_and_never_shared(cluster: dict[str, Any], job: dict[str, Any]) -> None:
    before = copy.deepcopy((cluster, job))
    composed = outcome(cluster, job)
    if isinstance(composed, dict):
        spoil(composed)
    assert (cluster, job) == before


def spoil(value: Any) -> None:
    """Change every container inside `value`, to find one that belongs to somebody else."""
    for inner in list(value.values()) if isinstance(value, dict) else list(value):
        if isinstance(inner, (dict, list)):
            spoil(inner)
    value.clear()


@patient
@given(envs, envs)
def test_composing_what_was_composed_changes_nothing(cluster: dict[str, Any], job: dict[str, Any]) -> None:
    composed = outcome(cluster, job)
    if isinstance(composed, dict):
        assert compose(cluster, composed, identity={}) == composed


@patient
@given(envs, envs)
def test_what_the_job_asks_for_is_what_it_gets(cluster: dict[str, Any], job: dict[str, Any]) -> None:
    composed = outcome(cluster, job, WHO)
    if not isinstance(composed, dict):
        return
    wanted = norm(job)
    for option in wanted.keys() - {"env_vars", "pip", "uv", "conda"}:
        assert composed[option] == wanted[option]
    for name in wanted.get("env_vars", {}).keys() - {"PATH", "PYTHONPATH"}:
        assert composed["env_vars"][name] == wanted["env_vars"][name]
    sent = composed.get("pip", composed.get("uv", composed.get("conda")))
    for package in wanted.get("pip", wanted.get("uv", [])):
        assert package in (sent if isinstance(sent, list) else sent["dependencies"][-1]["pip"])
    if isinstance(wanted.get("conda"), str):
        assert composed["conda"] == wanted["conda"]


@patient
@given(envs, envs)
def test_ray_never_gets_two_ways_to_install(cluster: dict[str, Any], job: dict[str, Any]) -> None:
    composed = outcome(cluster, job)
    assert isinstance(composed, str) or len(composed.keys() & {"pip", "uv", "conda"}) <= 1


@patient
@given(envs, envs)
def test_who_the_job_is_comes_last(cluster: dict[str, Any], job: dict[str, Any]) -> None:
    composed = outcome(cluster, job, WHO)
    assert isinstance(composed, str) or composed["env_vars"].items() >= WHO.items()
