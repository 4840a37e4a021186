"""The doctor's report as HTML: its parts for the page, and a file that needs nothing beside it.

Every name in it was chosen by somebody else, so all text is escaped.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape

from vit.findings import KINDS, Finding, Report, counted, shown_findings
from vit.names import dish_names, plain

FEW_CLASSES = 12  # more are shown on a click
LISTED = 200  # findings of a kind that are written out; all are in the JSON

# Colours are the page's where there is one.
STYLE = """
.doctor { line-height: 1.5; overflow-wrap: anywhere; }
.doctor table { border-collapse: collapse; margin: 8px 0 16px; }
.doctor th, .doctor td { padding: 3px 14px 3px 0; text-align: right; border: 0;
  font-variant-numeric: tabular-nums; }
.doctor th:first-child, .doctor td:first-child { text-align: left; }
.doctor thead th { font-weight: 600; color: var(--body-text-color-subdued, #776c62); }
.doctor details { margin: 0 0 18px; }
.doctor summary { cursor: pointer; font-weight: 650; }
.doctor section { margin: 0 0 18px; }
.doctor h4 { margin: 0 0 2px; font-size: 1rem; font-weight: 650; }
.doctor h4 span, .doctor .advice, .doctor small { color: var(--body-text-color-subdued, #776c62);
  font-weight: 400; }
.doctor p { margin: 0 0 6px; }
.doctor ul { list-style: none; margin: 6px 0 0; padding: 0; display: grid; gap: 8px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
.doctor li { display: flex; gap: 10px; align-items: flex-start; margin: 0; padding: 8px;
  border: 1px solid var(--border-color-primary, #e7dfd4); border-radius: 8px; font-size: 0.9rem; }
.doctor li > div:last-child { min-width: 0; flex: 1; }
.doctor li:has(img + img) { flex-direction: column; }
.doctor .small { display: flex; flex-wrap: wrap; gap: 4px; flex: 0 0 auto; }
.doctor img, .doctor .none { width: 72px; height: 72px; object-fit: cover; border-radius: 5px;
  margin: 0; }
.doctor .none { display: grid; place-items: center; font-size: 24px; line-height: 1;
  background: var(--background-fill-secondary, #f4efe8); color: #a2968a; }
.doctor code { font-size: 0.92em; background: none; padding: 0; border: 0; }
"""
_PAGE_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #2c2723; background: #fbf8f4;
  max-width: 1000px; margin: 0 auto; padding: 24px clamp(12px, 4vw, 32px); }
h1 { font-size: 1.5rem; margin: 0 0 12px; overflow-wrap: anywhere; }
.said { margin: 0 0 20px; padding: 0; list-style: none; }
.said .problem { font-weight: 650; }
"""


def lines_html(report: Report) -> str:
    """The three plain lines."""
    first, *others = (escape(line) for line in report.lines())
    mark = "" if report.trainable else ' class="problem"'
    items = f"<li{mark}>{first}</li>" + "".join(f"<li>{line}</li>" for line in others)
    return f'<ul class="said">{items}</ul>'


def details_html(report: Report) -> str:
    """Classes and counts, then every kind of finding with files and thumbnails."""
    parts = [_table(report)] if report.classes else []
    for name, findings in shown_findings(report.findings).items():
        kind = KINDS[name]
        rows = "".join(_finding_html(report, finding) for finding in findings[:LISTED])
        more = len(findings) - LISTED
        rest = f"<p><small>… and {more:,} more; the JSON report has all.</small></p>"
        parts.append(
            f"<section><h4>{escape(kind.title)} <span>{len(findings):,}</span></h4>"
            f'<p class="advice">{escape(kind.advice)}</p><ul>{rows}</ul>'
            f"{rest if more > 0 else ''}</section>"
        )
    return f'<div class="doctor">{"".join(parts)}</div>'


def page_html(report: Report) -> str:
    """A whole file: no script, no address, pictures inside."""
    title = f"{report.data}: the doctor's report"
    mark = f"<p><small>Fingerprint of the data set: {escape(report.fingerprint)}</small></p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{lines_html(report)}{details_html(report)}"
        f"{mark if report.fingerprint else ''}</body></html>"
    )


def _table(report: Report) -> str:
    tested = any(count.test for count in report.classes)
    chosen = report.trainable
    head = "<th>photos to</th><th>learn from</th>"
    head += "<th>choose by</th>" * chosen + "<th>test with</th>" * tested
    names = dish_names([count.name for count in report.classes])
    rows = "".join(
        f"<tr><td>{escape(plain(name))}</td><td>{c.train:,}</td>"
        + f"<td>{c.val:,}</td>" * chosen
        + f"<td>{c.test:,}</td>" * tested
        + "</tr>"
        for name, c in zip(names, report.classes, strict=True)
    )
    drawn = (
        "<p><small>Photos to choose the best weights by are drawn from those to learn from, the "
        "same ones each time.</small></p>"
    )
    return (
        f"<details{' open' * (len(report.classes) <= FEW_CLASSES)}><summary>Photos of each class"
        f"</summary><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"{drawn if chosen and report.drawn else ''}</details>"
    )


def _finding_html(report: Report, finding: Finding) -> str:
    pictures = "".join(
        f'<img src="data:image/jpeg;base64,{b64encode(data).decode()}" alt="">'
        for name in finding.files
        if (data := report.thumbnails.get(name))
    )
    of_file = finding.kind in _OF_PHOTOS
    pictures = pictures or ('<span class="none" aria-hidden="true">×</span>' if of_file else "")
    names = "<br>".join(f"<code>{escape(plain(name))}</code>" for name in finding.files[:6])
    if len(finding.files) > 6:
        names += f"<br>and {counted(len(finding.files) - 6, 'more file')}"
    picture = f'<div class="small">{pictures}</div>' if pictures else ""
    return f"<li>{picture}<div>{names}<br>{escape(finding.happens)}</div></li>"


_OF_PHOTOS = {"truncated", "unreadable", "too large", "too small"}  # of which no picture can be had
