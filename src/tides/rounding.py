"""When two times are the same: readings of a clock, and sums of them, are rounded to float64."""

import numpy as np
from numpy.typing import NDArray

# Units in the last place by which a sum of a few rounded numbers is wrong at most.
_UNITS = 4


def slack(times: NDArray[np.float64]) -> float:
    """How far a computed time may be from the one of these times that it stands for: 0.1 + 0.7 is less than 0.8.

    Never more than a quarter of the shortest gap, so that the times themselves stay distinct.
    """
    gaps = np.diff(times)
    shortest = gaps[gaps > 0].min(initial=np.inf)
    return float(min(_UNITS * np.spacing(np.abs(times).max(initial=0.0)), shortest / 4))
