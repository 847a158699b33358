"""Two classic systems of physiology, integrated with the classical Runge–Kutta method for many instances at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Parameters = Mapping[str, Array]


@dataclass(frozen=True)
class Regime:
    """Instances whose `parameter` lies in this range behave alike."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class System:
    """dx/dt = rate(x, parameters) with x (c, n): channels by instances."""

    name: str
    channels: tuple[str, ...]
    unit: str
    span: float
    """Length of a sampled window."""
    settle: float
    """Time integrated before the window, so that windows begin at no special moment."""
    step: float
    initial: tuple[float, ...]
    parameters: Mapping[str, float]
    control: str
    """The parameter whose value decides the regime."""
    regimes: tuple[Regime, ...]
    rate: Callable[[Array, Parameters], Array]


def integrate(system: System, parameters: Parameters, initial: Array, duration: float) -> tuple[Array, Array]:
    """Times (t,) and states (n, t, c) on the fixed grid of the system's step."""
    steps = round(duration / system.step)
    n = initial.shape[1]
    states = np.empty((steps + 1, len(system.channels), n))
    states[0] = initial
    h = system.step
    for k in range(steps):
        x = states[k]
        k1 = system.rate(x, parameters)
        k2 = system.rate(x + 0.5 * h * k1, parameters)
        k3 = system.rate(x + 0.5 * h * k2, parameters)
        k4 = system.rate(x + h * k3, parameters)
        states[k + 1] = x + h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
    return np.arange(steps + 1, dtype=np.float64) * h, states.transpose(2, 0, 1)


def _hodgkin_huxley(x: Array, p: Parameters) -> Array:
    """Membrane voltage (mV) and the gates m, h, n of the squid axon (Hodgkin and Huxley, 1952)."""
    v, m, h, n = x
    current = (
        p["stimulus"]
        - p["g_na"] * m**3 * h * (v - p["e_na"])
        - p["g_k"] * n**4 * (v - p["e_k"])
        - p["g_leak"] * (v - p["e_leak"])
    )
    open_m, close_m = _ramp(0.1 * (v + 40.0)), 4.0 * np.exp(-(v + 65.0) / 18.0)
    open_h, close_h = 0.07 * np.exp(-(v + 65.0) / 20.0), 1.0 / (1.0 + np.exp(-(v + 35.0) / 10.0))
    open_n, close_n = 0.1 * _ramp(0.1 * (v + 55.0)), 0.125 * np.exp(-(v + 65.0) / 80.0)
    return np.stack(
        [
            current / p["capacitance"],
            open_m * (1.0 - m) - close_m * m,
            open_h * (1.0 - h) - close_h * h,
            open_n * (1.0 - n) - close_n * n,
        ]
    )


def _ramp(z: Array) -> Array:
    """z / (1 − e^{−z}), continued by 1 at 0."""
    small = np.abs(z) < 1e-6
    safe = np.where(small, 1.0, z)
    return np.where(small, 1.0 + 0.5 * z, safe / -np.expm1(-safe))


def _calcium(x: Array, p: Parameters) -> Array:
    """Cytosolic and stored calcium (µM) with calcium-induced release (Goldbeter, Dupont and Berridge, 1990)."""
    z, y = np.maximum(x, 0.0)
    pump = p["pump"] * z**2 / (p["k_pump"] ** 2 + z**2)
    release = p["release"] * y**2 / (p["k_store"] ** 2 + y**2) * z**4 / (p["k_active"] ** 4 + z**4)
    leak = p["leak"] * y
    influx = p["influx"] + p["induced"] * p["stimulus"]
    return np.stack([influx - pump + release + leak - p["efflux"] * z, pump - release - leak])


HODGKIN_HUXLEY = System(
    name="hodgkin-huxley",
    channels=("V", "m", "h", "n"),
    unit="ms",
    span=60.0,
    settle=20.0,
    step=0.04,
    initial=(-65.0, 0.05, 0.6, 0.32),
    parameters={
        "capacitance": 1.0,
        "g_na": 120.0,
        "g_k": 36.0,
        "g_leak": 0.3,
        "e_na": 50.0,
        "e_k": -77.0,
        "e_leak": -54.4,
        "stimulus": 12.0,
    },
    control="stimulus",
    regimes=(Regime("rest", 0.0, 4.0), Regime("slow firing", 9.0, 13.0), Regime("fast firing", 40.0, 60.0)),
    rate=_hodgkin_huxley,
)

CALCIUM = System(
    name="calcium",
    channels=("cytosol", "store"),
    unit="s",
    span=6.0,
    settle=2.0,
    step=0.004,
    initial=(0.3, 1.6),
    parameters={
        "influx": 1.0,
        "induced": 7.3,
        "efflux": 10.0,
        "leak": 1.0,
        "pump": 65.0,
        "release": 500.0,
        "k_pump": 1.0,
        "k_store": 2.0,
        "k_active": 0.9,
        "stimulus": 0.4,
    },
    control="stimulus",
    regimes=(Regime("rest", 0.05, 0.22), Regime("slow waves", 0.34, 0.42), Regime("fast waves", 0.56, 0.68)),
    rate=_calcium,
)

SYSTEMS = {system.name: system for system in (HODGKIN_HUXLEY, CALCIUM)}
