"""What the layers of a PipeDream graph need in their backward op, by the name of their class.

As PyTorch's derivative formulas have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Saves(Enum):
    """What the backward op of a layer reads."""

    NOTHING = auto()
    INPUTS = auto()
    RESULT = auto()
    MASK = auto()
    INPUT_AND_INDICES = auto()
    ALL = auto()
    #: The layer is its input, seen otherwise.
    VIEW = auto()
    #: The layer is one item of its input, a tuple of results, or a view of a part of it.
    ITEM = auto()
    #: The layer is a number on the host.
    SIZE = auto()
    #: The layer loads the data.
    INPUT_OF_NET = auto()


@dataclass(frozen=True, slots=True)
class LayerKind:
    """The op kind of the profile, what backward reads, and whether that is a guess."""

    kind: str
    saves: Saves
    guessed: bool = False


_KINDS: tuple[tuple[str, LayerKind], ...] = (
    (r"Input\d*", LayerKind("input", Saves.INPUT_OF_NET)),
    (r"(Conv|ConvTranspose)[123]d", LayerKind("conv", Saves.INPUTS)),
    (r"Linear|Bilinear|MatMul|BMM", LayerKind("gemm", Saves.INPUTS)),
    (r"\w*Norm([123]d)?", LayerKind("norm", Saves.INPUTS)),
    (r"LeakyReLU|GELU|SiLU|Hardswish|Softplus|PReLU", LayerKind("elementwise", Saves.INPUTS)),
    (r"Re[Ll][Uu]6?|ELU|Sigmoid|Tanh|Hardtanh|Threshold", LayerKind("elementwise", Saves.RESULT)),
    (r"(Log)?Softmax", LayerKind("softmax", Saves.RESULT)),
    (r"(Adaptive)?MaxPool[123]d", LayerKind("pool", Saves.INPUT_AND_INDICES)),
    (r"(Adaptive)?AvgPool[123]d", LayerKind("pool", Saves.INPUTS)),
    (r"(Alpha)?Dropout([23]d)?", LayerKind("dropout", Saves.MASK)),
    (r"Embedding", LayerKind("embedding", Saves.INPUTS)),
    (r"Add|Sub|__iadd__|__add__", LayerKind("residual", Saves.NOTHING)),
    (r"Concat|Cat|Stack", LayerKind("elementwise", Saves.NOTHING)),
    (r"Mul|__mul__|__imul__", LayerKind("elementwise", Saves.INPUTS)),
    (r"View|Reshape|Flatten|Squeeze|Unsqueeze|Identity", LayerKind("view", Saves.VIEW)),
    (r"__getitem__", LayerKind("view", Saves.ITEM)),
    (r"Size|Shape", LayerKind("size", Saves.SIZE)),
)
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _KINDS)
_OTHER = LayerKind("other", Saves.ALL, guessed=True)


def layer_kind(description: str) -> LayerKind:
    """Return the kind of a layer such as ``Conv2d(3, 64, kernel_size=(3, 3))``.

    A class that is not known is taken to save all it reads and writes: at worst its plan keeps
    more than it must.
    """
    name = description.partition("(")[0].strip()
    return next((kind for pattern, kind in _COMPILED if pattern.fullmatch(name)), _OTHER)
