"""When a planner should return what it has."""

from __future__ import annotations

import time
from dataclasses import dataclass

#: Part of a time limit that a planner searches for. The rest is for what follows the search:
#: decoding the plan, and a step that overruns.
SEARCH_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant by which a search should end.

    Attributes
    ----------
    at : float
        Reading of `time.perf_counter`; infinite when there is no limit.
    """

    at: float = float("inf")

    @classmethod
    def after(cls, seconds: float | None, *, share: float = SEARCH_SHARE) -> Deadline:
        """Return the deadline of a time limit that starts now.

        Parameters
        ----------
        seconds : float or None
            The limit; None for none.
        share : float
            Part of it to search for.
        """
        return cls() if seconds is None else cls(time.perf_counter() + share * seconds)

    @property
    def passed(self) -> bool:
        """Whether the search should end now."""
        return self.left_s <= 0

    @property
    def left_s(self) -> float:
        """Seconds left, not below 0; infinite without a limit."""
        return max(0.0, self.at - time.perf_counter()) if self.is_limited else self.at

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.at != float("inf")

    @property
    def time_limit(self) -> float | None:
        """Seconds left as a time limit to pass on; None without one."""
        return self.left_s if self.is_limited else None

    def sooner(self, seconds: float) -> Deadline:
        """Return this deadline or the one `seconds` from now, whichever comes first."""
        return Deadline(min(self.at, time.perf_counter() + seconds))


#: The deadline of a search that may take as long as it needs.
NO_DEADLINE = Deadline()
