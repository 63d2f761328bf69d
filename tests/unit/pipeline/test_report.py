"""What a pipeline did, for programs and as a picture."""

from pathlib import Path

from raymc_pipeline.report import Report, RunReport, StepReport, plot


def a_report() -> Report:
    steps = (
        StepReport(name="read", seconds=1.5, rows=3, bytes=100),
        StepReport(name="StandardScaler", seconds=0.5, rows=3, bytes=100, columns=("a",)),
    )
    runs = tuple(RunReport(steps=steps, environment_s=after, peak_rss_bytes=1) for after in (8.0, 0.5))
    return Report(engine="ray", source="x.csv", output=None, runs=runs)


def test_a_report_survives_its_json_and_adds_up() -> None:
    report = a_report()
    assert Report.from_json(report.to_json()) == report
    assert "\n" not in report.to_json(indent=None)
    assert report.runs[0].seconds == 2.0


def test_a_report_can_be_drawn(tmp_path: Path) -> None:
    plot(a_report(), str(tmp_path / "r.png"))
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
