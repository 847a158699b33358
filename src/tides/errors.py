"""Everything this library raises on purpose. Catch `TidesError` to catch all of it."""


class TidesError(Exception):
    """Base of every deliberate error; its message names the argument, what was found and what was wanted."""


class ConfigError(TidesError, ValueError):
    """A configuration field is unknown, ill-typed, out of range or contradicts another one."""


class DataError(TidesError, ValueError):
    """Input data is unusable; the message names the series, the column and the row."""


class ShapeError(TidesError, ValueError):
    """A tensor has the wrong rank, width, dtype or device."""


class BackendUnavailable(TidesError, RuntimeError):
    """The kernel backend that was asked for cannot run this call; the message says why."""


class NotStreamable(TidesError, RuntimeError):
    """The model needs the future (bidirectional), so it has no step-by-step form."""


class Diverged(TidesError, RuntimeError):
    """Training produced NaN, infinite or exploding values; the last good checkpoint is named."""
