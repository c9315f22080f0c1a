"""Profiles made simpler than priced: what papers often assume of a training step."""

from __future__ import annotations

from dataclasses import replace

from slackswap.errors import SlackSwapError
from slackswap.profile import Profile


def simplified_profile(
    profile: Profile, *, backward: float | None = None, workspaces: bool = True
) -> Profile:
    """Return a profile with simpler backward times and scratch memory.

    Parameters
    ----------
    profile : Profile
        The iteration.
    backward : float, optional
        What the backward pass takes in all, over the forward pass; each op's share of it stays.
        Without it, or with 0, times stay as they are. Two is the common assumption: each of two
        gradients takes as many FLOPs as the result.
    workspaces : bool
        Whether ops take scratch memory and carry gradients past one another; without, what is
        saved is all that counts.

    Raises
    ------
    SlackSwapError
        When the factor is not positive, or nothing runs backward.
    """
    changed = profile
    if not workspaces:
        changed = replace(
            changed,
            forward=tuple(replace(op, workspace=0) for op in changed.forward),
            backward=tuple(replace(op, workspace=0, carried=0) for op in changed.backward),
        )
    if backward:
        total = sum(op.duration_ns for op in profile.backward)
        if not backward > 0 or not total:
            raise SlackSwapError(
                f"a backward pass of {backward} times the forward pass cannot be made of it",
                where=f"profile {profile.name!r}", fix="write a positive factor, such as 2.0",
            )
        factor = backward * sum(op.duration_ns for op in profile.forward) / total
        changed = replace(
            changed,
            backward=tuple(
                replace(op, duration_ns=round(factor * op.duration_ns)) for op in changed.backward
            ),
        )
    if changed is profile:
        return profile
    return replace(
        changed,
        provenance={**profile.provenance, "simplified": {
            "backward over forward": backward, "workspaces": workspaces,
        }},
    )
