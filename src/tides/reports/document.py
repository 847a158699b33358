"""A report as it is written: sections, tables and figures in order, then one page and its tables in every form."""

from collections.abc import Sequence
from pathlib import Path

from tides.errors import DataError
from tides.records import Record
from tides.reports.page import Image, heading, page, paragraph, picture
from tides.reports.table import Table

BEGIN, END = "<!-- results -->", "<!-- /results -->"
"""The marks between which a page of the documentation carries the main tables of a report."""

MARKDOWN = "tables.md"
"""All tables of a report in one file, for `tides report --markdown` and the documentation."""


class Document:
    """Collects the parts of one page; `write` leaves `index.html`, and each table as CSV, Markdown and LaTeX."""

    def __init__(self, title: str, out: Path) -> None:
        self.title, self.out = title, out
        self._parts: list[str] = []
        self._text: list[str] = []
        self._markdown: list[str] = []
        out.mkdir(parents=True, exist_ok=True)

    def section(self, text: str) -> None:
        """A section title."""
        self._parts.append(heading(text))

    def say(self, text: str) -> None:
        """A paragraph; words between backticks are set as code."""
        self._parts.append(paragraph(text))

    def show(self, image: Image, alternative: str, caption: str) -> None:
        """A figure that `drawing.save` returned."""
        self._parts.append(picture(image, alternative, caption))

    def table(self, name: str, table: Table, *, main: bool = True) -> None:
        """A table on the page and in files; `main` ones are printed in a terminal and in Markdown, too.

        One without rows is left out.
        """
        if not table.rows:
            return
        self._parts.append(table.to_html())
        (self.out / f"{name}.csv").write_text(table.to_csv(), encoding="utf-8")
        (self.out / f"{name}.tex").write_text(table.to_latex(), encoding="utf-8")
        if main:
            self._text.append(f"{table.caption}\n\n{table.to_text()}")
            self._markdown.append(table.to_markdown())

    def write(self, records: Sequence[Record], quick: int = 0) -> tuple[Path, str]:
        """The page's path, and its main tables as text."""
        if quick:
            self.say(f"{quick} records made by `--quick` are not shown.")
        (self.out / MARKDOWN).write_text("\n".join(self._markdown), encoding="utf-8")
        path = self.out / "index.html"
        path.write_text(page(self.title, self._parts, provenance(records)), encoding="utf-8")
        return path, "\n\n".join(self._text)


def insert(tables: str, page: Path) -> None:
    """Replace the text between the results marks of `page` with `tables`."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{page}: not a page that can be read ({error}), wanted Markdown in UTF-8") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise DataError(f"{page}: wanted one {BEGIN} and one {END}, between which the tables go")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{tables.strip()}\n\n{END}{after}", encoding="utf-8")


def provenance(records: Sequence[Record]) -> str:
    """Where the numbers come from: how many records, how long, with what."""
    if not records:
        return "No record yet."
    machine = max(records, key=lambda record: record.finished).environment
    seconds = sum(record.seconds for record in records)
    devices = sorted({str(record.results["device"]) for record in records if "device" in record.results})
    return (
        f"{len(records)} records, {seconds:.0f} s of computing in all, finished {max(r.finished for r in records)}"
        f"{' on ' + ', '.join(devices) if devices else ''}; tides {machine['tides-ssm']}, torch {machine['torch']}, "
        f"Python {machine['python']}."
    )
