"""The page about security: its commands are run, and its words are the code's."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.support.job_commands import Commands, raymc

from ray_multicluster_scheduler.server.authentication import PUBLIC
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.jobs import MOST_AUDIT_ENTRIES

__all__ = ["raymc"]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "security.md", DOCS / "security.zh-CN.md"]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@each_page
def test_its_commands_do_what_it_says(raymc: Commands, page: Path) -> None:
    create, listing, (*revoke, _), everything, of_ann = commands(page)
    made = raymc.run(*create)
    token = made.out.strip()
    assert token.startswith("raymc_")
    assert made.out == f"{token}\n"
    token_id = token.split("_")[1]
    assert token_id in raymc.run(*listing).out
    assert "revoked" in raymc.run(*revoke, token_id).out
    assert "token revoke" in raymc.run(*everything).out
    told = json.loads(raymc.run(*of_ann).out)  # the commands run as ann here
    assert [each["action"] for each in told] == ["token revoke", "token create"]


@each_page
def test_its_roles_and_public_paths_are_the_real_ones(page: Path) -> None:
    text = page.read_text()

    assert re.findall(r"^\| `([\w-]+)` \|", text, flags=re.MULTILINE) == [role.word for role in Role]
    assert all(f"`{path}`" in text for path in PUBLIC)
    assert f"{MOST_AUDIT_ENTRIES:,}" in text
