"""Planners by name: built in, registered, installed by others, or in a file."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from slackswap.errors import InvalidPlanner, UnknownName
from slackswap.naming import did_you_mean
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Planner
from slackswap.quantities import shown

ENTRY_POINT_GROUP = "slackswap.planners"

#: Built-in planners as import strings, so that listing them imports none of them.
BUILT_IN: Mapping[str, str] = {
    "keep-all": "slackswap.planners.trivial:KeepAll",
    "recompute-all": "slackswap.planners.trivial:RecomputeAll",
    "swap-all": "slackswap.planners.trivial:SwapAll",
    "block-checkpointing": "slackswap.planners.block_checkpointing:BlockCheckpointing",
    "slackswap": "slackswap.planners.slackswap:SlackSwap",
    "aot-offload": "slackswap.planners.aot_offload:AotOffload",
    "capuchin": "slackswap.planners.capuchin:Capuchin",
    "chen-greedy": "slackswap.planners.chen:ChenGreedy",
    "chen-sqrt": "slackswap.planners.chen:ChenSqrt",
    "dtr": "slackswap.planners.dtr:DTR",
    "flashneuron": "slackswap.planners.flashneuron:FlashNeuron",
    "g10": "slackswap.planners.g10:G10",
    "largest-first": "slackswap.planners.largest_first:LargestFirst",
    "megatron-offload": "slackswap.planners.megatron_offload:MegatronOffload",
    "on-demand": "slackswap.planners.on_demand:OnDemand",
    "pofo": "slackswap.planners.pofo:Pofo",
    "pytorch-budget": "slackswap.planners.pytorch_budget:PyTorchBudget",
    "sac-ladder": "slackswap.planners.sac_ladder:SacLadder",
    "selective-checkpointing": "slackswap.planners.selective:SelectiveCheckpointing",
    "ssdtrain": "slackswap.planners.flashneuron:SSDTrain",
    "superneurons": "slackswap.planners.superneurons:SuperNeurons",
    "superneurons-ungated": "slackswap.planners.superneurons:SuperNeuronsUngated",
    "swapadvisor": "slackswap.search.swapadvisor:SwapAdvisor",
    "vdnn++": "slackswap.planners.vdnn:VDNNPlusPlus",
    "vdnn-all": "slackswap.planners.vdnn:VDNNAll",
    "vdnn-conv": "slackswap.planners.vdnn:VDNNConv",
    "vdnn-dyn": "slackswap.planners.vdnn:VDNNDyn",
    "enumerate": "slackswap.search.enumeration:Enumerate",
    "genetic": "slackswap.search.genetic_planner:Genetic",
    "genetic-seeded": "slackswap.search.genetic_planner:GeneticSeeded",
    "layer-window": "slackswap.search.layer_window:LayerWindow",
    "milp": "slackswap.search.milp_planner:MilpPlanner",
    "recompute-milp": "slackswap.search.recompute_milp:RecomputeMilp",
    "slackswap+": "slackswap.search.slackswap_plus:SlackSwapPlus",
}

_registered: dict[str, Callable[[], Planner]] = {}

PlannerLike = str | Planner | type | Callable[..., Plan]
F = TypeVar("F")


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionPlanner:
    """A planner made of one function with the protocol's signature."""

    function: Callable[..., Plan]
    name: str
    version: str
    capabilities: Capabilities

    def plan(self, problem: Any, *, rng: Any, time_limit: float | None, report: Any) -> Plan:
        """Call the function."""
        return self.function(problem, rng=rng, time_limit=time_limit, report=report)


@overload
def register(target: F) -> F: ...
@overload
def register(
    target: str | None = None, *, version: str = "1", capabilities: Capabilities | None = None
) -> Callable[[F], F]: ...


def register(
    target: Any = None, *, version: str = "1", capabilities: Capabilities | None = None
) -> Any:
    """Register a planner class or function under a name; a second time replaces the first.

    Use it as ``@register``, ``@register("my-planner")`` or
    ``@register("my-planner", capabilities=Capabilities(deterministic=False))``. A function's
    name, with dashes for underscores, is its planner's name unless one is given; a class
    carries its own.

    Raises
    ------
    InvalidPlanner
        When the target does not follow the protocol.
    """

    def add(planner: Any, name: str | None = None) -> Any:
        factory = _factory(planner, name=name, version=version, capabilities=capabilities)
        _registered[name or factory().name] = factory
        return planner

    if target is None or isinstance(target, str):
        return lambda planner: add(planner, target)
    return add(target)


def unregister(name: str) -> None:
    """Forget a planner registered in this process."""
    _registered.pop(name, None)


def planner_names() -> tuple[str, ...]:
    """Return the names of all planners known by name, built-in ones first."""
    return tuple(dict.fromkeys((*BUILT_IN, *sorted(_entry_points()), *sorted(_registered))))


def resolve_planner(target: PlannerLike, **parameters: Any) -> Planner:
    """Turn a name, a class, a function or an instance into a planner.

    Parameters
    ----------
    target : str, Planner, type or callable
        A name from `planner_names`, ``module:Name``, ``path/to/file.py:Name``, a planner class,
        a planning function, or a planner.
    **parameters
        Replace the planner's own parameters.

    Raises
    ------
    UnknownName
        When no planner has this name; close names are suggested.
    InvalidPlanner
        When the target cannot be loaded or does not follow the protocol.
    """
    if isinstance(target, str):
        factory = _registered.get(target)
        planner = factory() if factory else _factory(_load(target))()
    else:
        planner = _factory(target)()
    return _with_parameters(planner, parameters) if parameters else planner


def is_built_in(target: PlannerLike) -> bool:
    """Whether a planner comes with this package, and nothing was registered in its place."""
    if isinstance(target, str):
        return target in BUILT_IN and target not in _registered
    kind = target if inspect.isclass(target) else type(target)
    place = f"{kind.__module__}:{kind.__qualname__}"
    return place in BUILT_IN.values() and _import(place) is kind


def is_registered(target: PlannerLike) -> bool:
    """Whether a planner is known in this process alone: a registered name, or an object."""
    return not isinstance(target, str) or target in _registered


def may_be_loaded(target: PlannerLike) -> bool:
    """Whether a name has the form of a planner that others provide."""
    return isinstance(target, str) and (":" in target or target in _entry_points())


def parameters_of(planner: Planner) -> dict[str, Any]:
    """Return a planner's parameters: the fields of its dataclass."""
    instance: Any = planner
    if isinstance(planner, FunctionPlanner) or not dataclasses.is_dataclass(instance):
        return {}
    return {
        spec.name: getattr(planner, spec.name)
        for spec in dataclasses.fields(instance)
        if spec.name not in ("name", "version", "capabilities")
    }


def _load(target: str) -> Any:
    points = _entry_points()
    if target in BUILT_IN:
        return _import(BUILT_IN[target])
    if target in points:
        try:
            return points[target].load()
        except Exception as error:
            raise InvalidPlanner(
                f"entry point {target!r} cannot be loaded ({error})",
                where=f"package {points[target].value}", fix="reinstall or repair that package",
            ) from error
    if ":" in target:
        return _import(target)
    raise UnknownName(
        f"no planner is called {target!r}{did_you_mean(target, planner_names())}",
        where="planner",
        fix="see `slackswap planners list`, or give module:Name or path/to/file.py:Name",
    )


def _import(target: str) -> Any:
    place, _, attribute = target.rpartition(":")
    try:
        module = _module_of_file(Path(place)) if place.endswith(".py") else (
            importlib.import_module(place)
        )
        return getattr(module, attribute)
    except InvalidPlanner:
        raise
    except AttributeError as error:
        raise InvalidPlanner(
            f"there is no {attribute!r} in {place}", where="planner", fix="check the name after ':'"
        ) from error
    except Exception as error:
        raise InvalidPlanner(
            f"{place} cannot be imported ({type(error).__name__}: {error})",
            where="planner", fix="run it with python to see the fault",
        ) from error


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise InvalidPlanner(f"there is no file {path}", where="planner", fix="check the path")
    # The resolved path in the name keeps two files of the same name apart, and lets a worker
    # process that unpickles the planner find the module again.
    name = "slackswap_planner_" + "".join(c if c.isalnum() else "_" for c in str(path.resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidPlanner(f"{path} is not a Python file", where="planner", fix="check the path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _factory(
    target: Any,
    *,
    name: str | None = None,
    version: str = "1",
    capabilities: Capabilities | None = None,
) -> Callable[[], Planner]:
    if inspect.isclass(target):
        try:
            planner = target()
        except Exception as error:
            raise InvalidPlanner(
                f"{target.__name__} cannot be made without arguments ({error})",
                where="planner", fix="give every parameter a default",
            ) from error
        _check_protocol(planner)
        return cast("Callable[[], Planner]", target)
    if isinstance(target, Planner):
        _check_protocol(target)
        return lambda: target
    if callable(target):
        # An object that can be called, such as a partial function, has no name of its own.
        own_name = getattr(target, "__name__", type(target).__name__)
        _check_signature(target, own_name)
        planner = FunctionPlanner(
            target,
            name or own_name.replace("_", "-"),
            version,
            capabilities or Capabilities(),
        )
        return lambda: planner
    raise InvalidPlanner(
        f"{shown(target)} is not a planner", where="planner",
        fix="give a class or function with plan(problem, *, rng, time_limit, report)",
    )


def _check_protocol(planner: Any) -> None:
    kind = type(planner).__name__
    missing = [
        attribute
        for attribute in ("name", "version", "capabilities", "plan")
        if not hasattr(planner, attribute)
    ]
    if missing:
        raise InvalidPlanner(
            f"{kind} lacks {', '.join(missing)}", where="planner",
            fix="see slackswap.Planner, or `slackswap planners new NAME` for a working example",
        )
    if not isinstance(planner.capabilities, Capabilities):
        raise InvalidPlanner(
            f"{kind}.capabilities is not a slackswap.Capabilities", where="planner",
            fix="write capabilities = Capabilities(...)",
        )
    _check_signature(planner.plan, f"{kind}.plan")


def _check_signature(function: Callable[..., Any], name: str) -> None:
    try:
        inspect.signature(function).bind(None, rng=None, time_limit=None, report=None)
    except TypeError as error:
        raise InvalidPlanner(
            f"{name} does not take (problem, *, rng, time_limit, report): {error}",
            where="planner", fix="give it these parameters",
        ) from error


def _with_parameters(planner: Planner, parameters: Mapping[str, Any]) -> Planner:
    known = parameters_of(planner)
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise InvalidPlanner(
            f"{planner.name} has no parameter {unknown[0]!r}{did_you_mean(unknown[0], known)}",
            where="planner", fix=f"use one of {', '.join(known) or 'none: it has none'}",
        )
    return dataclasses.replace(planner, **parameters)  # type: ignore[type-var]


def _entry_points() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
