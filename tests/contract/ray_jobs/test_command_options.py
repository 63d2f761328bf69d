"""Every option of every command of the stock `ray job`, against the server with TLS and tokens."""

import json
from pathlib import Path
from typing import Any

import yaml
from ray.dashboard.modules.job.cli import job_cli_group
from tests.contract.ray_jobs.gateway import serving
from tests.contract.ray_jobs.ray_job import Done, RayJob
from tests.contract.test_ray_api_tls import write_certificate
from tests.system import fake
from tests.unit.packages.trees import make_tree

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.access import Caller, Role
from ray_multicluster_scheduler.testing import ShellRunner

ROOT = Caller(user="root", role=Role.ADMIN)


class Options:
    """Runs `ray job` with what every command has, and notes which options were given."""

    def __init__(self, ray_job: RayJob, **common: str) -> None:
        self._ray_job = ray_job
        self._common = {f"--{name.replace('_', '-')}": value for name, value in common.items()}
        self.given: dict[str, set[str]] = {name: set() for name in job_cli_group.commands}

    async def run(self, command: str, *words: str, **options: str) -> Done:
        """Give options that override the common ones; the words come last."""
        changed = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        merged = {**self._common, **changed}
        self.given[command] |= {*merged, *(word for word in words if word.startswith("--") and word != "--")}
        return await self._ray_job(command, *(part for pair in merged.items() for part in pair), *words)


def known_options() -> dict[str, set[str]]:
    """Return the long options that the installed Ray has, by command."""
    return {
        name: {option for each in command.params for option in each.opts if option.startswith("--")}
        for name, command in job_cli_group.commands.items()
    }


async def submit_with_files(ray: Options, folder: Path) -> None:
    """The environment comes from a file, the directory from an option that wins over the file's."""
    code = make_tree(folder / "code", {"data.txt": "shipped\n", "big.bin": "x"})
    environment = folder / "env.yaml"
    told: dict[str, Any] = {
        "env_vars": {"COLOUR": "green"},
        "excludes": ["big.bin"],
        "working_dir": "/nowhere",
    }
    environment.write_text(yaml.safe_dump(told))
    done = await ray.run(
        *("submit", "--verbose", "--", "sh", "-c", "echo $COLOUR; ls; cat data.txt"),
        job_id="old",
        runtime_env=str(environment),
        working_dir=str(code),
        metadata_json=json.dumps({"raymc.priority": "5", "team": "red"}),
    )
    assert done.code == 0, done.out
    assert "--job-id option is deprecated" in done.out
    assert "\ngreen\n" in done.out
    assert "\nshipped\n" in done.out
    assert "\nbig.bin\n" not in done.out
    assert "Job 'old' succeeded" in done.out


async def submit_with_resources(ray: Options) -> None:
    done = await ray.run(
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
    assert done.code == 0, done.out
    assert "Job 'new' submitted successfully" in done.out
    assert "\x1b[" in done.out
    assert "succeeded" not in done.out


async def test_every_option_of_every_command_works(tmp_path: Path) -> None:
    certificate = tmp_path / "own.pem"
    write_certificate(certificate)
    cluster = fake("a", 1, gpus=1, resources={"fpga": 1}, runner=ShellRunner())
    async with serving(tmp_path / "served", cluster, certificate=certificate) as gateway:
        system = gateway.system
        token = system.scheduler.tokens.create("ann", Role.SUBMIT, expires_s=None, by=ROOT).secret
        ray_job = RayJob(gateway, tmp_path)
        ray = Options(
            ray_job,
            address=gateway.address,
            verify=str(certificate),
            headers=json.dumps({"Authorization": f"Bearer {token}"}),
            log_style="record",
            log_color="false",
        )
        del ray_job.environ["RAY_ADDRESS"]  # or it would win over the option

        await submit_with_files(ray, tmp_path)
        old = system.scheduler.store.get("old").spec
        assert (old.user, old.priority, old.metadata) == ("ann", 5, {"raymc.priority": "5", "team": "red"})

        await submit_with_resources(ray)
        await system.until("new", JobState.RUNNING)
        sent = cluster.cluster.jobs["new"].submission
        assert sent.demand == {"CPU": 0.5, "GPU": 1.0, "memory": 1024.0, "fpga": 1.0}
        assert sent.label_selector == {"region": "!west"}

        status = await ray.run("status", "--verbose", "new", verify="false")
        assert "Job is currently running." in status.out, status.out
        stopped = await ray.run("stop", "--no-wait", "--verbose", "new")
        assert (stopped.code, "Attempting to stop job 'new'" in stopped.out) == (0, True), stopped.out
        followed = await ray.run("logs", "--follow", "--verbose", "new")
        assert (followed.code, "\nblue\n" in followed.out) == (0, True), followed.out
        assert "Job 'new' was stopped" in followed.out
        listed = await ray.run("list", "--verbose")
        assert "submission_id='old'" in listed.out, listed.out
        deleted = await ray.run("delete", "--verbose", "new")
        assert (deleted.code, "Job 'new' deleted successfully" in deleted.out) == (0, True), deleted.out
        assert ray.given == known_options()

        unknown = await ray.run("status", "old", headers="{}")
        assert (unknown.code, "401" in unknown.out or "oken" in unknown.out) == (1, True), unknown.out
