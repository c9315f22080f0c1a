"""Errors of running a plan."""

from __future__ import annotations

from slackswap.errors import SlackSwapError


class ExecutionFailed(SlackSwapError):
    """A step of a plan could not be carried out; parameters and optimizer are as they were."""


class DifferentModel(SlackSwapError):
    """A plan, a profile or a call does not belong to the model that was compiled."""
