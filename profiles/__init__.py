"""Profiles and where they come from: library, generators, capture, importers.

The names below are imported on first use, so that importing one generator does not import all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackswap.profiles.catalogue import DEFAULT_HARDWARE, find_hardware, hardware_names
    from slackswap.profiles.hideable import hideable_fraction
    from slackswap.profiles.importers import import_profile
    from slackswap.profiles.importers.table import from_frame
    from slackswap.profiles.library import (
        find_profile,
        library_entries,
        profile_hardware,
        profile_names,
    )
    from slackswap.profiles.plots import profile_figure, write_profile_plot
    from slackswap.profiles.prices import Prices
    from slackswap.profiles.random_dag import (
        deep_chain_profile,
        layered_profile,
        random_problem,
        random_profile,
    )
    from slackswap.profiles.summary import ProfileSummary, summarise
    from slackswap.profiles.transformer import TransformerModel, transformer_profile

_HOME = {
    "catalogue": ("DEFAULT_HARDWARE", "find_hardware", "hardware_names"),
    "hideable": ("hideable_fraction",),
    "importers": ("import_profile",),
    "importers.table": ("from_frame",),
    "library": ("find_profile", "library_entries", "profile_hardware", "profile_names"),
    "plots": ("profile_figure", "write_profile_plot"),
    "prices": ("Prices",),
    "random_dag": (
        "deep_chain_profile",
        "layered_profile",
        "random_problem",
        "random_profile",
    ),
    "summary": ("ProfileSummary", "summarise"),
    "transformer": ("TransformerModel", "transformer_profile"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "DEFAULT_HARDWARE",
    "Prices",
    "ProfileSummary",
    "TransformerModel",
    "deep_chain_profile",
    "find_hardware",
    "find_profile",
    "from_frame",
    "hardware_names",
    "hideable_fraction",
    "import_profile",
    "layered_profile",
    "library_entries",
    "profile_figure",
    "profile_hardware",
    "profile_names",
    "random_problem",
    "random_profile",
    "summarise",
    "transformer_profile",
    "write_profile_plot",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'slackswap.profiles' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slackswap.profiles.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
