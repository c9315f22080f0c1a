"""Documents in the file formats: one example of each, as the specification prints it."""

from __future__ import annotations

import copy
import json
from typing import Any

_PROFILE = """
{"schema": "slackswap.profile/1", "name": "two-layers", "source": "random", "provenance": {},
 "static_bytes": 0,
 "tensors": [{"name": "x", "nbytes": 8}, {"name": "h", "nbytes": 16},
             {"name": "y", "nbytes": 8, "allowed": ["keep", "swap"]}],
 "forward": [{"name": "fc1", "layer": 0, "duration_ns": 5, "reads": [0], "writes": [1],
              "workspace": 0, "kind": "gemm"},
             {"name": "fc2", "layer": 1, "duration_ns": 5, "reads": [1], "writes": [2]}],
 "backward": [{"name": "fc2.bwd", "layer": 1, "duration_ns": 10, "reads": [1, 2],
               "workspace": 12, "carried": 8},
              {"name": "fc1.bwd", "layer": 0, "duration_ns": 10, "reads": [0]}]}
"""
_HARDWARE = """
{"schema": "slackswap.hardware/1", "name": "toy", "d2h_bytes_per_s": 25000000000,
 "h2d_bytes_per_s": 25000000000, "latency_ns": 10000, "full_duplex": true, "host_bytes": null,
 "device_bytes": null, "flops_per_s": null, "memory_bytes_per_s": null}
"""
_PLAN = """
{"schema": "slackswap.plan/1", "actions": {"h": "swap"}, "prefetch_gates": {"h": 0},
 "profile_sha256": null,
 "planner": {"name": "hand", "version": "1", "parameters": {}, "seed": null}}
"""


def profile_document() -> dict[str, Any]:
    return copy.deepcopy(json.loads(_PROFILE))


def hardware_document() -> dict[str, Any]:
    return copy.deepcopy(json.loads(_HARDWARE))


def plan_document() -> dict[str, Any]:
    return copy.deepcopy(json.loads(_PLAN))
