"""One self-contained HTML page: no script, no network, readable on a phone and on paper."""

from html import escape
from typing import NamedTuple

_STYLE = """
:root { --ink: #1b1f24; --soft: #59636e; --line: #d9dee3; --tint: #f4f6f8; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem; max-width: 62rem; color: var(--ink); background: #fff;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
p, figcaption, caption { max-width: 46rem; }
figure { margin: 1.2rem 0; }
figure img { width: var(--drawn); max-width: 100%; min-width: min(34rem, var(--drawn)); height: auto; display: block; }
figcaption, caption, .note, footer { color: var(--soft); font-size: .86rem; }
caption { text-align: left; padding: .3rem 0; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
thead th { background: var(--tint); } thead th:first-child { background: var(--tint); }
.note { display: block; }
code { background: var(--tint); padding: .1rem .3rem; border-radius: 3px; font-size: .9em; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .6rem; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } h2 { break-after: avoid; }
  figure, table { break-inside: avoid; } figure img { min-width: 0; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; }
  th, td { padding: .2rem .3rem; } }
"""


class Image(NamedTuple):
    """A picture as a data URI, and the width it was drawn for: letters look alike in narrow and in wide ones."""

    data_uri: str
    inches: float


def page(title: str, parts: list[str], footer: str) -> str:
    """A whole page from finished HTML parts."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(parts) + f"\n<footer>{escape(footer)}</footer></body></html>\n"
    )


def heading(text: str) -> str:
    """A section title."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Plain text; words between backticks are set as code."""
    return f"<p>{marked(text)}</p>"


def marked(text: str) -> str:
    """Escaped text in which words between backticks are set as code; one without its partner stays what it is."""
    text = escape(text)
    pieces = [text] if text.count("`") % 2 else text.split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def picture(image: Image, alternative: str, caption: str) -> str:
    """An inline image with its caption; on a narrow screen it scrolls by itself, as tables do."""
    drawn = f'<img src="{image.data_uri}" style="--drawn:{image.inches:g}in" alt="{escape(alternative)}">'
    return f'<figure><div class="scroll">{drawn}</div><figcaption>{marked(caption)}</figcaption></figure>'
