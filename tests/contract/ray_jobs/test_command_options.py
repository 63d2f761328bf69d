"""Every option of every command of the stock `ray job`, against the server with TLS and tokens."""

import json
from pathlib import Path

import yaml
from ray.dashboard.modules.job.cli import job_cli_group
from tests.contract.ray_jobs.gateway import a_gateway
from tests.contract.ray_jobs.ray_job import RayJob
from tests.contract.test_ray_api_tls import write_certificate
from tests.support.system import fake
from tests.support.trees import make_tree

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.testing import ShellRunner

ROOT = Caller(user="root", role=Role.ADMIN)


class Options:
    """Writes commands with what every command has, and notes which options were given."""

    def __init__(self, **common: str) -> None:
        self._common = common
        self.given: dict[str, set[str]] = {name: set() for name in job_cli_group.commands}

    def command(self, name: str, *words: str, **options: str) -> list[str]:
        """Return the words of a command; these options override the common ones."""
        merged = {**self._common, **options}
        named = {f"--{option.replace('_', '-')}": value for option, value in merged.items()}
        self.given[name] |= {*named, *(word for word in words if word.startswith("--") and word != "--")}
        return [name, *(part for pair in named.items() for part in pair), *words]


def known_options() -> dict[str, set[str]]:
    """Return the long options that the installed Ray has, by command."""
    return {
        name: {option for each in command.params for option in each.opts if option.startswith("--")}
        for name, command in job_cli_group.commands.items()
    }


def submit_with_files(ray: Options, folder: Path) -> list[str]:
    """The environment comes from a file, the directory from an option that wins over the file's."""
    code = make_tree(folder / "code", {"data.txt": "shipped\n", "big.bin": "x"})
    told = {"env_vars": {"COLOUR": "green"}, "excludes": ["big.bin"], "working_dir": "/nowhere"}
    (folder / "env.yaml").write_text(yaml.safe_dump(told))
    return ray.command(
        *("submit", "--verbose", "--", "sh", "-c", "echo $COLOUR; ls; cat data.txt"),
        job_id="old",
        runtime_env=str(folder / "env.yaml"),
        working_dir=str(code),
        metadata_json=json.dumps({"raymc.priority": "5", "team": "red"}),
    )


def submit_with_resources(ray: Options) -> list[str]:
    return ray.command(
        *("submit", "--no-wait", "--", "sh", "-c", "echo $COLOUR; sleep 100"),
        submission_id="new",
        runtime_env_json=json.dumps({"env_vars": {"COLOUR": "blue"}}),
        entrypoint_num_cpus="0.5",
        entrypoint_num_gpus="1",
        entrypoint_memory="1024",
        entrypoint_resources='{"fpga": 1}',
        entrypoint_label_selector='{"region": "!west"}',
        log_style="pretty",
        log_color="true",
    )


async def check_submissions(ray: Options, ray_job: RayJob, folder: Path) -> None:
    # In this order: once Ray's command line has been told to use no colours, it uses none any more.
    new, old = await ray_job.several([submit_with_resources(ray), submit_with_files(ray, folder)])

    assert old.code == 0, old.out
    assert "--job-id option is deprecated" in old.out
    assert "\ngreen\n" in old.out
    assert "\nshipped\n" in old.out
    assert "\nbig.bin\n" not in old.out
    assert "Job 'old' succeeded" in old.out
    spec = ray_job.system.scheduler.store.jobs.get("old").spec
    assert (spec.user, spec.priority, spec.metadata) == ("ann", 5, {"raymc.priority": "5", "team": "red"})

    assert new.code == 0, new.out
    assert "Job 'new' submitted successfully" in new.out
    assert "\x1b[" in new.out
    assert "succeeded" not in new.out
    await ray_job.system.until("new", JobState.RUNNING)
    sent = ray_job.system.ray["a"].cluster.jobs["new"].submission
    assert sent.demand == {"CPU": 0.5, "GPU": 1.0, "memory": 1024.0, "fpga": 1.0}
    assert sent.label_selector == {"region": "!west"}


async def check_the_others(ray: Options, ray_job: RayJob) -> None:
    status, stopped, followed, listed, deleted, gone, unknown = await ray_job.several(
        [
            ray.command("status", "--verbose", "new", verify="false"),
            ray.command("stop", "--no-wait", "--verbose", "new"),
            ray.command("logs", "--follow", "--verbose", "new"),
            ray.command("list", "--verbose"),
            ray.command("delete", "--verbose", "new"),
            ray.command("status", "new"),
            ray.command("status", "old", headers="{}"),
        ]
    )
    assert "Job is currently running." in status.out, status.out
    assert (stopped.code, "Attempting to stop job 'new'" in stopped.out) == (0, True), stopped.out
    assert (followed.code, "\nblue\n" in followed.out) == (0, True), followed.out
    assert "Job 'new' was stopped" in followed.out
    assert "submission_id='old'" in listed.out, listed.out
    assert (deleted.code, "Job 'new' deleted successfully" in deleted.out) == (0, True), deleted.out
    assert (gone.code, "Job new does not exist" in gone.out) == (1, True), gone.out
    assert (unknown.code, "Authentication" in unknown.out) == (1, True), unknown.out


async def test_every_option_of_every_command_works(tmp_path: Path) -> None:
    certificate = tmp_path / "own.pem"
    write_certificate(certificate)
    cluster = fake("a", 2, gpus=1, resources={"fpga": 1}, runner=ShellRunner())
    async with a_gateway(tmp_path / "served", cluster, certificate=certificate) as gateway:
        tokens = gateway.system.scheduler.tokens
        token = tokens.create("ann", Role.SUBMIT, expires_s=None, by=ROOT).token
        ray_job = RayJob(gateway, tmp_path)
        del ray_job.environ["RAY_ADDRESS"]  # or it would win over the option
        ray = Options(
            address=gateway.address,
            verify=str(certificate),
            headers=json.dumps({"Authorization": f"Bearer {token}"}),
            log_style="record",
            log_color="false",
        )
        await check_submissions(ray, ray_job, tmp_path)
        await check_the_others(ray, ray_job)
        assert ray.given == known_options()
