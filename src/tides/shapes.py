"""The axis legend: every shape string in this library uses these letters.

    b  batch          l  time (observations)   q  queries
    d  input channels h  hidden width H        p  state size P (modes)
    r  rank           k  classes               c  forecast channels
    m  models trained side by side (a leading axis; absent where one model runs)

`gaps[k] = t_k - t_{k-1} >= 0` everywhere: the time that passed *before* observation k.
`lam` is the continuous-time eigenvalue, `lam_bar` its discrete factor, `delta` = gap × learned scale,
`u` an input, `s` a state (`s0` initial, `s_last` final), `y` an output, `skip` the paper's D.
"""

from jaxtyping import Bool, Complex, Float, Inexact
from torch import Tensor

Signal = Float[Tensor, "*b l h"]
Gaps = Float[Tensor, "*b l"]
Valid = Bool[Tensor, "*b l"]
Modes = Complex[Tensor, "*b l p"]
AnyModes = Inexact[Tensor, "*b l p"]
ModeState = Inexact[Tensor, "*b p"]

__all__ = ["AnyModes", "Gaps", "ModeState", "Modes", "Signal", "Valid"]
