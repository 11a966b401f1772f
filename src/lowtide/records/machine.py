"""The machine and the versions that something was measured with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """What figures can be compared within: times of another machine or another torch are other times."""

    processor: str
    cores: int
    memory_B: int
    system: str
    python: str
    torch: str
    lowtide: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, torch {self.torch}, lowtide {self.lowtide}"
