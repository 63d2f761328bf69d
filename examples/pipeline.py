"""A table is scaled by Ray Data on the best cluster, as a job, and the result is read here."""

import csv
import random
import subprocess
import tempfile
from pathlib import Path

#: All clusters of `raymc local up` see this folder; with yours, write s3:// addresses or a folder on NFS.
FOLDER = Path(tempfile.mkdtemp(prefix="pipeline-"))
PEOPLE, SCALED = FOLDER / "people.csv", FOLDER / "scaled.csv"

draw = random.Random(0)
with PEOPLE.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["age", "income"])
    writer.writerows((draw.randint(18, 90), round(draw.gauss(50_000, 10_000), 2)) for _ in range(200))

what = ["--operators", "SimpleImputer", "StandardScaler"]
files = ["--input", str(PEOPLE), "--output", str(SCALED)]
subprocess.run(["raymc", "pipeline", "--cluster", "auto", *what, *files], check=True)

parts = sorted(SCALED.glob("*.csv"))
rows = [row for part in parts for row in csv.DictReader(part.open())]
for column in ("age", "income"):
    values = [float(row[column]) for row in rows]
    print(f"{column}: {len(values)} values, mean {abs(sum(values)) / len(values):.3f}")
