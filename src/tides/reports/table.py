"""A table once, written as HTML, Markdown, LaTeX, CSV and plain text."""

import csv
from dataclasses import dataclass
from html import escape
from io import StringIO

from tides.reports.page import marked


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
        caption = f"<caption>{marked(self.caption)}</caption>" if self.caption else ""
        return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    def to_csv(self) -> str:
        """Comma separated, one line per row, notes after a space."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[cell.replace("\n", " ") for cell in row] for row in self.rows])
        return text.getvalue()

    def to_markdown(self) -> str:
        """A pipe table, the caption above it; notes stand below their value."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        body = "\n".join("| " + " | ".join(map(_pipe_cell, line)) + " |" for line in lines)
        return (f"{self.caption}\n\n" if self.caption else "") + body + "\n"

    def to_latex(self) -> str:
        """A `booktabs` table; notes are set small after their value."""
        head = " & ".join(_latex(title) for title in self.columns) + r" \\"
        body = "\n".join(" & ".join(map(_latex, row)) + r" \\" for row in self.rows)
        columns = "l" + "r" * (len(self.columns) - 1)
        caption = f"\\caption{{{_latex(self.caption)}}}\n" if self.caption else ""
        return (
            f"\\begin{{table}}\n\\centering\n{caption}\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n"
            f"{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
        )

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
    small = "".join(f'<span class="note">{marked(note)}</span>' for note in notes)
    return f"<td>{marked(value)}{small}</td>"


def _pipe_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "≈": r"$\approx$",
    "√": r"$\surd$",
    "→": r"$\to$",
    "Δ": r"$\Delta$",
    "Λ": r"$\Lambda$",
    "δ": r"$\delta$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "ν": r"$\nu$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "−": r"$-$",
    "–": "--",
    "…": r"\ldots{}",
}


def _latex(text: str) -> str:
    value, *notes = map(_latex_line, text.split("\n"))
    return value + "".join(rf" {{\scriptsize {note}}}" for note in notes)


def _latex_line(text: str) -> str:
    """Words between backticks are set as code: a backtick alone would open a quotation."""
    text = "".join(_LATEX.get(letter, letter) for letter in text)
    pieces = [text] if text.count("`") % 2 else text.split("`")
    return "".join(rf"\texttt{{{piece}}}" if i % 2 else piece for i, piece in enumerate(pieces))
