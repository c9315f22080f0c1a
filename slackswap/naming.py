"""What somebody may have meant who wrote a name that nobody has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `` (did you mean 'h100-sxm'?)``, or nothing where no name is near.

    A name that begins with what was written is nearer than one that only looks like it: ``h100`` is
    a short ``h100-sxm``, not a misspelt ``v100``.
    """
    known = list(names)
    near = [full for full in known if name and full.lower().startswith(name.lower())]
    near = near or difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
