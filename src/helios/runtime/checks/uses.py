"""What a program does to which buffer, read off its launches once for all checks."""

from __future__ import annotations

from helios.contract.enums import AccessMode
from helios.dataclass import dataclass
from helios.runtime.manifest import Program


@dataclass(frozen=True, slots=True)
class Use:
    """The first operand of a program that touches a buffer in this way."""

    launch: int
    position: int
    buffer: int
    access: AccessMode

    @property
    def field(self) -> str:
        """Its path in the program."""
        return f"launches[{self.launch}].operands[{self.position}].buffer"


def uses_of(program: Program) -> tuple[Use, ...]:
    """A use for each buffer and access, in the order of their first launches."""
    found: dict[tuple[int, AccessMode], Use] = {}
    # The decoder shares equal operands, so most are known by being the same object.
    seen = {id(None)}
    for number, launch in enumerate(program.launches):
        for position, operand in enumerate(launch.operands):
            if id(operand) in seen or operand is None:
                continue
            seen.add(id(operand))
            key = (operand.buffer, operand.access)
            if key not in found:
                found[key] = Use(number, position, operand.buffer, operand.access)
    return tuple(found.values())
