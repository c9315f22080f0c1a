"""Compile everything that planning needs: ``python -m slackswap.cost_model.precompile``."""

from __future__ import annotations

from slackswap.cost_model.engine import warm_up
from slackswap.registry import resolve_planner


def main() -> None:
    """Compile the kernel and what the rule of SlackSwap adds, into the user's cache."""
    warm_up()
    own = getattr(resolve_planner("slackswap"), "warm_up", None)
    if own is not None:
        own()


if __name__ == "__main__":
    main()
