"""What the columns of a data set mean: kept with a model so that a new table is read the same way."""

from dataclasses import dataclass, field
from typing import Any

from tides.errors import DataError


@dataclass(frozen=True)
class StaticColumn:
    """A static column: numeric when `categories` is None, else one-hot (or ordinal) over its categories."""

    name: str
    categories: tuple[str, ...] | None = None
    ordinal: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.categories is None or self.ordinal:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)

    @property
    def numeric(self) -> bool:
        return self.categories is None


@dataclass(frozen=True)
class Schema:
    """Channel names, time unit and origin, classes and static columns of a data set.

    If times came from dates, `origin` is the instant (ISO 8601, UTC) of time 0, else None. If times came from numbers
    beyond 2⁵³, which float64 would round (nanoseconds since 1970), `offset` is the whole number of time 0, else 0.
    `class_names` is None if labels are numbers, or absent.
    """

    channels: tuple[str, ...]
    unit: str | None = None
    origin: str | None = None
    class_names: tuple[str, ...] | None = None
    static: tuple[StaticColumn, ...] = field(default=())
    offset: int = 0

    @property
    def static_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.static for name in column.feature_names)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "channels": list(self.channels),
            "unit": self.unit,
            "origin": self.origin,
            "class_names": None if self.class_names is None else list(self.class_names),
            "static": [
                {
                    "name": column.name,
                    "categories": None if column.categories is None else list(column.categories),
                    "ordinal": column.ordinal,
                }
                for column in self.static
            ],
        } | ({"offset": self.offset} if self.offset else {})

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Schema":
        try:
            return cls(
                channels=tuple(plain["channels"]),
                unit=plain["unit"],
                origin=plain["origin"],
                class_names=None if plain["class_names"] is None else tuple(plain["class_names"]),
                static=tuple(
                    StaticColumn(
                        column["name"],
                        None if column["categories"] is None else tuple(column["categories"]),
                        column["ordinal"],
                    )
                    for column in plain["static"]
                ),
                offset=int(plain.get("offset", 0)),
            )
        except (KeyError, TypeError) as error:
            raise DataError(f"not a schema: {error!r} in {plain!r}") from None
