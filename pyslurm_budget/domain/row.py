"""Records of which a site has millions: frozen for the type checker, quick to make when the program runs.

A frozen dataclass sets each field by a call, which takes eight times as long as setting it; a sync of a long history
spent a third of its time there. What writes to a field of one of these is refused by the type checker alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ("row",)

if TYPE_CHECKING:
    from dataclasses import dataclass as row
else:
    from dataclasses import dataclass

    def row(*, frozen: bool, slots: bool, order: bool = False) -> Any:
        """A dataclass with a hash; ``frozen`` says what the type checker is told."""
        return dataclass(slots=slots, order=order, unsafe_hash=frozen)
