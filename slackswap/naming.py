"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Names suggested at once.
_MOST = 3

#: Letters from which on the beginning of a name stands for it.
_BEGINNING = 2


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that `name` may stand for, the likeliest first.

    Names that begin with it come before names that have it as a part, and these before names that
    are merely spelt alike: ``h100`` stands for ``h100-sxm``, though ``v100`` differs by one letter
    only. Case and the choice between ``-`` and ``_`` do not count.

    Parameters
    ----------
    name : str
        What was given.
    known : iterable of str
        What there is.

    Returns
    -------
    tuple of str
        At most three of `known`; empty if none is near.
    """
    spelt = {_plain(each): each for each in known}
    wanted = _plain(name)
    if wanted in spelt:
        return (spelt[wanted],)
    begun = parts = []
    if len(wanted) >= _BEGINNING:
        begun = [key for key in spelt if key.startswith(wanted)]
        parts = [key for key in spelt if wanted in key.split("-")]
    near = begun or parts or difflib.get_close_matches(wanted, list(spelt), n=1)
    return tuple(spelt[key] for key in near[:_MOST])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `near_names` as an addition to a message, with a blank before; empty if none is near.

    For example ``" (did you mean 'h100-sxm' or 'h100-pcie'?)"``.
    """
    near = [repr(each) for each in near_names(name, known)]
    if not near:
        return ""
    *first, last = near
    return f" (did you mean {', '.join(first) + ' or ' if first else ''}{last}?)"


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")
