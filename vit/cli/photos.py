"""Commands about sets of photos."""

import argparse
import json
import sys
from pathlib import Path

from vit.cli.terminal import Command, megabytes, progress
from vit.names import plain


def add_to(command: Command) -> None:
    add = command("doctor", doctor).add_argument
    add("data", metavar="DATA", help="folder or zip of class folders")
    add("--report", metavar="FILE.html", help="save the report, with pictures, in one file")
    add("--json", action="store_true", help="print JSON")

    add = command("download", download).add_argument
    add("dataset", choices=("pizza-steak-sushi", "pizza-steak-sushi-20-percent"))
    add("--to", metavar="FOLDER", help="where it goes [the user's folder]")

    add = command("figure", figure).add_argument
    add("data", help="folder or zip of class folders")
    add("--count", type=int, default=25, help="photos [25]")
    add("--seed", type=int, default=0)
    add("--out", default="photos.png", metavar="FILE", help="[photos.png]")


def doctor(given: argparse.Namespace) -> int:
    """Say what is in a data set and what training does with every file; 2 when it cannot train."""
    from vit.doctor import examine
    from vit.findings import KINDS, Report, shown_findings
    from vit.findings_html import page_html

    report = None
    for step in examine(given.data):
        if isinstance(step, Report):
            report = step
        elif step.total:
            progress(step.done, step.total)
    assert report
    if given.report:
        path = Path(given.report)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page_html(report), "utf-8")
        print(f"report: {path}", file=sys.stderr)
    if given.json:
        print(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
        return 0 if report.trainable else 2
    print("\n".join(line for line in dict.fromkeys(report.lines())))
    for name, findings in shown_findings(report.findings).items():
        print(f"\n{KINDS[name].title} ({len(findings):,}). {KINDS[name].advice}")
        for finding in findings[:10]:
            files = " = ".join(plain(file) for file in finding.files)
            print(f"  {files}: {finding.happens}" if files else f"  {finding.happens}")
        if len(findings) > 10:
            print(f"  … and {len(findings) - 10:,} more; --report and --json list them")
    return 0 if report.trainable else 2


def download(given: argparse.Namespace) -> int:
    """Fetch the photos of pizza, steak and sushi."""
    from vit.download import download_pizza_steak_sushi

    variant = "20_percent" if given.dataset.endswith("percent") else "10_percent"
    print(download_pizza_steak_sushi(given.to, variant, megabytes))
    return 0


def figure(given: argparse.Namespace) -> int:
    """Draw random training photos with their labels."""
    from vit.data import open_data, sample_figure

    sample_figure(open_data(given.data).train, given.count, given.seed).save(given.out)
    print(given.out)
    return 0
