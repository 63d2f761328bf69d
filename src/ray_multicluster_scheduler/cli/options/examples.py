"""Examples of the commands, by all their words, for `--help` and for the page about the command line."""

from __future__ import annotations

EXAMPLES = {
    "submit": """\
raymc submit -- python /data/train.py --epochs 3
raymc submit --working-dir . --cpus 4 --memory 8GiB --timeout 2h -- python train.py
raymc submit --array 0-199 --name parts -- python /data/part.py --part {i}
raymc submit --dry-run --cluster mac -- python /data/train.py""",
    "jobs": """\
raymc jobs --state running,queued
raymc jobs --name nightly --since 7d
raymc jobs --group sweep --limit 0 --json""",
    "status": "raymc status sub_2f1c66a0b3d1",
    "logs": """\
raymc logs -f sub_2f1c66a0b3d1
raymc logs nightly --tail 20
raymc logs -f sweep-0 sweep-1""",
    "explain": "raymc explain sub_2f1c66a0b3d1",
    "wait": "raymc wait nightly --timeout 1h",
    "stop": """\
raymc stop sub_2f1c66a0b3d1
raymc stop --group nightly
raymc stop --all-mine --yes""",
    "retry": """\
raymc retry sub_2f1c66a0b3d1
raymc retry nightly --no-wait""",
    "delete": "raymc delete sub_2f1c66a0b3d1",
    "login": "raymc login https://raymc.example.org",
    "drain": 'raymc drain mac --reason "new disks"',
    "db backup": "raymc db backup jobs-backup.db",
    "db restore": "raymc db restore jobs-backup.db",
    "db move": "raymc db move --to postgresql://raymc@db.example.org/raymc",
    "local up": "raymc local up --names centos,mac --cpus 4,2",
}
