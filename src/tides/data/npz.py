"""Files of plain arrays, with one kind of error for all the ways in which they can be damaged."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError

# A copy that stopped half-way is no zip file, or one whose entries do not decompress.
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path, what: str, fields: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of a file, or these `fields`; `what` says what the file should have been."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {field: file[field] for field in (file.files if fields is None else fields)}
    except _DAMAGE as error:
        raise DataError(f"{path} is not {what}: {error}") from None
