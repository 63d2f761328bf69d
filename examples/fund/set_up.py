"""Copy the project below two homes in one folder, for two clusters of `raymc local up` on this machine.

Usage: raymc local status --json | python set_up.py FOLDER

Prints each text that it replaces in the copies: homes and addresses, which are others here.
"""

import json
import re
import shutil
import sys
from pathlib import Path

PROJECT = Path(__file__).parent / "Index_Markup_Forecasting"
HOMES = ("/home/zorro", "/Users/zorro")
ADDRESSES = {"centos": "192.168.0.145", "mac": "192.168.0.100"}


def table(folder: Path, heads: list[dict[str, str]]) -> dict[str, str]:
    """Return what is replaced, and by what."""
    replaced = {home: f"{folder}{home}" for home in HOMES}
    for head in heads:
        replaced[f"{ADDRESSES[head['name']]}:10001"] = head["client_address"]
        replaced[f"http://{ADDRESSES[head['name']]}:8265"] = head["dashboard"]
    if sys.version_info >= (3, 12):  # from there on `randint` takes whole numbers only
        replaced["randint(1e10, 9e10)"] = "randint(int(1e10), int(9e10))"
    return replaced


def copy(folder: Path, replaced: dict[str, str]) -> None:
    """Write the project below both homes."""
    either = re.compile("|".join(map(re.escape, replaced)))
    for home in HOMES:
        target = Path(f"{folder}{home}/project/pycharm/Fund/{PROJECT.name}")
        shutil.copytree(PROJECT, target, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (each for each in target.rglob("*") if each.is_file()):
            path.write_text(either.sub(lambda found: replaced[found[0]], path.read_text()))


if __name__ == "__main__":
    replaced_here = table(Path(sys.argv[1]).absolute(), json.load(sys.stdin))
    copy(Path(sys.argv[1]).absolute(), replaced_here)
    for old_text, new_text in replaced_here.items():
        print(f"{old_text:30} -> {new_text}")
