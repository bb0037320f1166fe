"""What a check of a claim found, statement by statement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One statement, whether it holds, and what it was compared with."""

    statement: str
    holds: bool
    detail: str = ""

    def __str__(self) -> str:
        """A line of the report."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{'true ' if self.holds else 'FALSE'} {self.statement}{detail}"


@dataclass(frozen=True)
class Verification:
    """All that was checked; true only if every statement holds."""

    checks: tuple[Check, ...]

    @property
    def true(self) -> bool:
        """Whether every statement holds."""
        return all(check.holds for check in self.checks)

    def __bool__(self) -> bool:
        """Whether every statement holds."""
        return self.true

    def __str__(self) -> str:
        """One line a statement."""
        return "\n".join(str(check) for check in self.checks)

    def __repr__(self) -> str:
        """The verdict, and how many statements it rests on."""
        return f"<Verification {'true' if self.true else 'FALSE'}: {len(self.checks)} checks>"

    def __add__(self, other: Verification) -> Verification:
        """Both together."""
        return Verification(self.checks + other.checks)
