"""The progress of each member of a population."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from tides.training.state import RunState


@dataclass
class PopulationState:
    """One `RunState` per member; members that have not stopped are at the same epoch."""

    members: list[RunState]
    stacked: list[int]
    """Members that are still computed; some of them may have stopped."""

    @classmethod
    def start(cls, members: int) -> Self:
        return cls([RunState() for _ in range(members)], list(range(members)))

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        return cls(
            [RunState(**member) for member in content["members"]],
            list(content.get("stacked", range(len(content["members"])))),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def running(self) -> list[int]:
        """Members that have not stopped."""
        return [index for index, member in enumerate(self.members) if member.stopped is None]

    @property
    def epoch(self) -> int:
        """The number of epochs completed by the members that still run."""
        return max(member.epoch for member in self.members if member.stopped is None)
