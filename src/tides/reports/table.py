"""A table once, written as HTML, as CSV and as plain text."""

import csv
from dataclasses import dataclass
from html import escape
from io import StringIO


@dataclass(frozen=True)
class Table:
    """Column titles and rows of finished text; a line break inside a cell separates a value from its note."""

    columns: list[str]
    rows: list[list[str]]
    caption: str = ""

    def to_html(self) -> str:
        """A scrollable table; lines after the first of a cell are printed small."""
        head = "".join(f"<th>{escape(title)}</th>" for title in self.columns)
        body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in self.rows)
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    def to_csv(self) -> str:
        """Comma separated, one line per row, notes after a space."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[cell.replace("\n", " ") for cell in row] for row in self.rows])
        return text.getvalue()

    def to_text(self) -> str:
        """Aligned columns for a terminal; a cell's notes stand below its value."""
        cells = [[[title] for title in self.columns], *([cell.split("\n") for cell in row] for row in self.rows)]
        widths = [max(len(line) for row in cells for line in row[i]) for i in range(len(self.columns))]
        lines = []
        for row in cells:
            for depth in range(max(map(len, row))):
                words = [cell[depth] if depth < len(cell) else "" for cell in row]
                rest = (word.rjust(width) for word, width in zip(words[1:], widths[1:], strict=True))
                lines.append("  ".join([words[0].ljust(widths[0]), *rest]).rstrip())
        return "\n".join(lines)


def _cell(text: str) -> str:
    value, *notes = text.split("\n")
    small = "".join(f'<span class="note">{escape(note)}</span>' for note in notes)
    return f"<td>{escape(value)}{small}</td>"
