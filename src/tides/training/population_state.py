"""How far each member of a population is."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from tides.training.state import RunState


@dataclass
class PopulationState:
    """One `RunState` per member; members that have not stopped are at the same epoch."""

    members: list[RunState]

    @classmethod
    def start(cls, members: int) -> Self:
        return cls([RunState() for _ in range(members)])

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        return cls([RunState(**member) for member in content["members"]])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def running(self) -> bool:
        return any(member.stopped is None for member in self.members)

    @property
    def epoch(self) -> int:
        """Epochs that the members which still run have completed."""
        return max(member.epoch for member in self.members if member.stopped is None)
