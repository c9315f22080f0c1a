"""The JSON documents of the file formats, validated strictly at the file boundary.

The published schemas (`profile-1.schema.json`, ...) are generated from these models by
``python -m slackswap.schemas.documents``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackswap.errors import SlackSwapError
from slackswap.quantities import shown

_MAX = 2**60

Count = Annotated[int, Field(ge=0, le=_MAX)]
Rate = Annotated[int, Field(ge=1, le=_MAX)]
Share = Annotated[int, Field(ge=10_000, le=1_000_000)]  # millionths
ActionName = Literal["keep", "swap", "recompute"]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Document(BaseModel):
    # Strict: "5" and 5.0 are not integers; an unknown key is a mistake, not a comment.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=False)


class TensorDocument(_Document):
    """A tensor entry."""

    name: str
    nbytes: Count
    allowed: list[ActionName] = ["keep", "swap", "recompute"]


class ForwardDocument(_Document):
    """A forward op entry."""

    name: str
    layer: int | None = None
    duration_ns: Count
    reads: list[Count]
    writes: list[Count]
    workspace: Count = 0
    recomputable: bool = True
    kind: str | None = None


class BackwardDocument(_Document):
    """A backward op entry."""

    name: str
    layer: int | None = None
    duration_ns: Count
    reads: list[Count]
    workspace: Count = 0
    carried: Count = 0
    kind: str | None = None


class ProfileDocument(_Document):
    """One measured or modelled training iteration."""

    schema_: Literal["slackswap.profile/1"] = Field(alias="schema")
    name: str
    source: Literal["measured", "traced", "analytic", "imported", "random"]
    provenance: dict[str, Any] = {}
    static_bytes: Count = 0
    tensors: list[TensorDocument]
    forward: list[ForwardDocument]
    backward: list[BackwardDocument]


class HardwareDocument(_Document):
    """A device with its host link."""

    schema_: Literal["slackswap.hardware/1"] = Field(alias="schema")
    name: str
    d2h_bytes_per_s: Rate
    h2d_bytes_per_s: Rate
    latency_ns: Count = 0
    full_duplex: bool = True
    host_bytes: Count | None = None
    device_bytes: Count | None = None
    flops_per_s: Rate | None = None
    memory_bytes_per_s: Rate | None = None
    d2h_contended_ppm: Share = 1_000_000
    h2d_contended_ppm: Share = 1_000_000
    d2h_root_bytes_per_s: Rate | None = None
    h2d_root_bytes_per_s: Rate | None = None


class PlannerDocument(_Document):
    """Who made a plan."""

    name: str
    version: str = ""
    parameters: dict[str, Any] = {}
    seed: int | None = None


class PlanDocument(_Document):
    """What happens to each saved tensor."""

    schema_: Literal["slackswap.plan/1"] = Field(alias="schema")
    actions: dict[str, ActionName]
    offload_gates: dict[str, Count] = {}
    offload_barriers: list[Count] = []
    prefetch_gates: dict[str, Count] = {}
    prefetch_barriers: list[Count] = []
    planner: PlannerDocument | None = None
    profile_sha256: Sha256 | None = None


PUBLISHED: Mapping[str, type[_Document]] = {
    "profile-1.schema.json": ProfileDocument,
    "hardware-1.schema.json": HardwareDocument,
    "plan-1.schema.json": PlanDocument,
}

D = TypeVar("D", bound=_Document)


def validated(model: type[D], document: Any, error: type[SlackSwapError]) -> D:
    """Check a JSON document against its format.

    Raises
    ------
    SlackSwapError
        Of type `error`, naming the first offending field and what would fix it.
    """
    try:
        return model.model_validate(document)
    except ValidationError as failure:
        details = failure.errors(include_url=False)
        first = details[0]
        what, fix = _explained(first, model)
        # Of a file of another format every key is wrong; that is said by the first.
        more = len(details) - 1 if first["loc"] != ("schema",) else 0
        raise error(
            what + (f" (and {more} more like this)" if more else ""),
            where=_place(first["loc"]), fix=fix,
        ) from None


def json_schema(model: type[_Document]) -> dict[str, Any]:
    """Return the JSON Schema of a document, as it is published."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(by_alias=True),
    }


def _place(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "document"


def _explained(detail: Any, model: type[_Document]) -> tuple[str, str]:
    """Return what is wrong with a value, and what would fix it, in this project's words."""
    kind, found = detail["type"], _excerpt(detail["input"])
    limits = detail.get("ctx", {})
    schema = next(name for name, known in PUBLISHED.items() if known is model)
    if kind == "missing":
        return "the key is missing", "add it"
    if kind == "extra_forbidden":
        return "is no key of this format", "remove it, or check its spelling"
    if kind == "literal_error" and detail["loc"] == ("schema",):
        return (f"is {found}, not {limits['expected']}",
                f"give a file of this format, as {schema} describes it")
    if kind == "literal_error":
        return f"is {found}, not {limits['expected']}", "use one of these"
    if kind == "greater_than_equal":
        return f"is {found}, below {limits['ge']}", f"write {limits['ge']} or more"
    if kind == "less_than_equal":
        if limits["le"] < _MAX:
            return f"is {found}, above {limits['le']}", f"write {limits['le']} or less"
        return f"is {found}, beyond 2^60", "check the unit: nanoseconds and bytes"
    if kind.startswith("int"):
        return f"is {found}, not a whole number", "write whole nanoseconds, bytes and indices"
    if kind == "string_pattern_mismatch":
        return f"is {found}, not 64 hexadecimal digits", "leave it out, or copy it whole"
    wanted = {
        "bool_type": "true or false", "string_type": "a text", "list_type": "a list",
        "dict_type": "an object", "model_type": "an object",
    }.get(kind)
    text = f"is {found}, not {wanted}" if wanted else f"{detail['msg'].lower()}, found {found}"
    return text, f"see the schema {schema}"


def _excerpt(value: object) -> str:
    # Containers are not printed: they may hold the whole file.
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # a document that was built by hand
        return shown(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def publish(folder: Path) -> None:
    """Write the JSON Schema files into `folder`."""
    for name, model in PUBLISHED.items():
        (folder / name).write_text(json.dumps(json_schema(model), indent=1) + "\n")


if __name__ == "__main__":
    publish(Path(__file__).parent)
