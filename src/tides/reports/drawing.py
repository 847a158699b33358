"""Matplotlib, loaded on demand: one style for every figure, saved as PNG and PDF and as an inline image."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from tides.errors import TidesError
from tides.reports.page import Image

# Colours that stay apart for colour-blind readers and in grey print (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7F7F7F", "#B8A200")

_STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


@contextmanager
def canvas(rows: int, columns: int, size: tuple[float, float], **options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes in the house style; closed afterwards."""
    try:
        import matplotlib
    except ImportError as error:
        raise TidesError('figures need matplotlib: pip install "tides-ssm[plots]"') from error
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def as_written(name: str) -> str:
    """A name from a user's data as a label, with dollars escaped: matplotlib takes text between dollars for
    mathematics.
    """
    return name.replace("$", r"\$")


def save(figure: Any, folder: Path, name: str) -> Image:
    """Write `name`.png and `name`.pdf; the PNG is returned for an HTML page."""
    folder.mkdir(parents=True, exist_ok=True)
    # Without a creation date the same records give the same file.
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    (folder / f"{name}.png").write_bytes(buffer.getvalue())
    data_uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return Image(data_uri, figure.get_size_inches()[0])
