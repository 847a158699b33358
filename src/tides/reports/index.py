"""The page that leads to all reports: what was run, what was not, and where the tables are."""

from html import escape
from importlib import import_module
from pathlib import Path

from tides.errors import DataError
from tides.reports import REPORTS
from tides.reports.page import page, paragraph
from tides.reports.table import Table

TITLE = "TIDES: results"


def report_all(root: Path, out: Path | None = None) -> tuple[Path, str]:
    """Write every report that has records below `root`/<experiment>, and the index over all experiments."""
    folder = out or root
    folder.mkdir(parents=True, exist_ok=True)
    links, lines = [], []
    for name, module in REPORTS.items():
        report = import_module(module)
        target = (out / name) if out else root / name / "report"
        count = len(list((root / name / "records").glob("*.json")))
        try:
            path, _ = report.report(root / name, [], target)
        except DataError as error:
            # Records that cannot be shown, as those of two settings, are not the same as none.
            state = "not shown" if count else "not run"
            links.append(
                f"<li>{escape(report.TITLE)}: <em>{state}</em> <span class='note'>{escape(str(error))}</span></li>"
            )
            lines.append([name, state, str(error) if count else ""])
            continue
        place = path.relative_to(folder).as_posix()
        links.append(
            f'<li><a href="{escape(place)}">{escape(report.TITLE)}</a> <span class="note">{count} records</span></li>'
        )
        lines.append([name, "report", place])
    if not any(state == "report" for _, state, _ in lines):
        reasons = [reason for _, _, reason in lines if reason] or ["no experiment has records there"]
        raise DataError(f"{root}: {'; '.join(reasons)}; run one first, or point to others with --in")
    index = folder / "index.html"
    parts = [paragraph(_INTRODUCTION), "<ul>" + "".join(links) + "</ul>"]
    index.write_text(page(TITLE, parts, f"{len(REPORTS)} experiments."), encoding="utf-8")
    return index, Table(["experiment", "state", "page"], lines).to_text()


_INTRODUCTION = (
    "Each page is drawn from the records of its experiment and from nothing else, with the published numbers and "
    "their sources beside ours. What was not run is shown as not run."
)
