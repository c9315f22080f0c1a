"""Why a step cannot be captured, and what to change: one answer for each cause."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from slackswap.errors import SlackSwapError

_COMPILED = (
    "is compiled", "capture before torch.compile: return the plain model or function from build"
)
_NESTED = (
    "nested tensors have no fixed sizes", "pad the sequences to one length and give a mask"
)


@dataclass(frozen=True, slots=True)
class _Failure:
    """What is known of an exception."""

    error: Exception

    @property
    def text(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"

    def passed(self, file: str, function: str = "") -> bool:
        """Whether it passed through a file of PyTorch's, or a function there."""
        return any(
            file in frame.filename.replace("\\", "/") and function in ("", frame.name)
            for frame in traceback.extract_tb(self.error.__traceback__)
        )

    def is_shape_of(self, operator: str) -> bool:
        """Whether the sizes of this operator's results depend on values."""
        return isinstance(self.error, DynamicOutputShapeException) and operator in str(self.error)


#: Test, cause, advice; the first that holds is told.
_CAUSES: tuple[tuple[Callable[[_Failure], bool], str, str], ...] = (
    (
        lambda f: f.passed("flex_attention.py"),
        "flex attention cannot be traced",
        "use scaled_dot_product_attention with a mask for the capture",
    ),
    (lambda f: f.passed("_dynamo/eval_frame.py", "compile_wrapper"),
     "a part of the step " + _COMPILED[0], _COMPILED[1]),
    (
        lambda f: "mirrored meta" in f.text,
        "the step calls backward (or autograd.grad) itself",
        "return the loss; capture runs the backward pass, and leaves out the optimizer's step",
    ),
    (
        lambda f: f.is_shape_of("_ctc_loss"),
        "the CTC loss reads its lengths from tensors",
        "capture with another loss of the same logits, such as cross_entropy: the work of the "
        "CTC loss is small beside the model's",
    ),
    (
        lambda f: f.is_shape_of("_pack_padded_sequence"),
        "a packed sequence takes its sizes from a tensor of lengths",
        "give the recurrent layer the padded batch",
    ),
    (
        lambda f: isinstance(f.error, DynamicOutputShapeException),
        "the shape of a result depends on the values of a tensor",
        "for boolean-mask indexing and nonzero use torch.where or masked_fill; for a mixture of "
        "experts use the batched experts or a fixed capacity (Hugging Face: "
        "experts_implementation='batched_mm')",
    ),
    (
        lambda f: isinstance(f.error, DataDependentOutputException),
        "the step depends on the value of a tensor",
        "leave out .item(), branches on tensors and shapes made from values; integers and "
        "flags among the example inputs may decide, activations may not",
    ),
    (lambda f: "nested" in f.text.lower() or f.passed("torch/nested/"), *_NESTED),
    (
        lambda f: "Expected inputs of BF16" in f.text or "_grouped_mm" in f.text,
        "the grouped matrix product of the experts does not take these number formats",
        "make the model bfloat16, or use the batched experts (Hugging Face: "
        "experts_implementation='batched_mm')",
    ),
    (
        lambda f: "Sparse" in f.text,
        "sparse tensors have no storage to plan",
        "use dense tensors",
    ),
    (
        lambda f: "CUDA is not available" in f.text,
        "autocast('cuda') would do nothing here: CUDA is not available",
        "use torch.autocast(x.device.type)",
    ),
)


def refusal(error: Exception, name: str, what: str) -> SlackSwapError:
    """Return the error that tells a user why a capture failed, and what to do."""
    failure = _Failure(error)
    for holds, cause, advice in _CAUSES:
        if holds(failure):
            return SlackSwapError(f"{what}: {cause} ({_line(error)})", where=name, fix=advice)
    return SlackSwapError(
        f"{what} ({type(error).__name__}: {_line(error)})", where=name,
        fix="run one forward and backward pass by hand; all tensors must be on one device",
    )


def check_plain(function: Any, modules: list[nn.Module], leaves: list[Any], name: str) -> None:
    """Refuse what is known beforehand not to be traceable: compiled models and nested inputs.

    Raises
    ------
    SlackSwapError
        Naming the module or input.
    """
    for part in _compiled(function, modules):
        raise SlackSwapError(f"{part} {_COMPILED[0]}", where=name, fix=_COMPILED[1])
    if any(getattr(leaf, "is_nested", False) for leaf in leaves):
        raise SlackSwapError(f"an example input is nested: {_NESTED[0]}", where=name,
                             fix=_NESTED[1])


def _compiled(function: Any, modules: list[nn.Module]) -> Iterator[str]:
    if not isinstance(function, nn.Module) and hasattr(function, "_torchdynamo_orig_callable"):
        yield "the loss function"
    for root in modules:
        for path, module in root.named_modules():
            wrapped = type(module).__name__ == "OptimizedModule"
            if wrapped or getattr(module, "_compiled_call_impl", None) is not None:
                yield f"the module {path!r}" if path else "the model"


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else "no message"
