"""What the backward op of a `torch.fx` node needs, by the operation that the node calls.

As PyTorch's derivative formulas have it, which is what a capture finds by tracing. A *factor* is
saved only if what it is multiplied with has a gradient.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class NodeSaves(Enum):
    """What autograd saves."""

    NOTHING = auto()
    #: Operands on the device that have a gradient, or could have.
    INPUTS = auto()
    RESULT = auto()
    #: The last two operands of a product, each if the other one has a gradient.
    FACTORS = auto()
    #: The divisor if the dividend has a gradient, and both if the divisor has.
    QUOTIENT = auto()
    #: Operands that are no floats: flags, indices.
    INDICES = auto()
    #: The input, and two fp32 statistics for each row.
    STATISTICS = auto()
    #: A mask of one byte for each result.
    MASK = auto()
    #: The input, and an int64 index for each result.
    INPUT_AND_INDICES = auto()
    #: Query, key, value, result, and an fp32 log-sum for each row.
    ATTENTION = auto()
    #: All that it reads and writes: the operation is not known.
    ALL = auto()


class Form(Enum):
    """What a node makes."""

    STORAGE = auto()
    #: Its first operand, seen otherwise.
    VIEW = auto()
    #: A view if its first operand is contiguous, else a copy.
    RESHAPE = auto()
    #: A view if the number format stays, else a copy.
    CAST = auto()


@dataclass(frozen=True, slots=True)
class NodeRule:
    """Kind in the profile, what backward reads, and whether the node makes memory of its own."""

    kind: str
    saves: NodeSaves = NodeSaves.NOTHING
    form: Form = Form.STORAGE
    guessed: bool = False


_RULES: tuple[tuple[str, NodeRule], ...] = (
    (r"view|view_as|permute|transpose|transpose_|t|mt|expand|expand_as|squeeze|unsqueeze|split|"
     r"split_with_sizes|chunk|unbind|select|narrow|detach|detach_|getitem|identity|alias|"
     r"movedim|moveaxis|swapaxes|swapdims|unfold|diagonal|unflatten|requires_grad_",
     NodeRule("view", form=Form.VIEW)),
    (r"reshape|reshape_as|flatten|contiguous", NodeRule("copy", form=Form.RESHAPE)),
    (r"to|type|type_as|float|half|double|bfloat16|long|int|bool|cuda|cpu",
     NodeRule("copy", form=Form.CAST)),
    (r"linear|matmul|mm|bmm|addmm|baddbmm|addbmm|bilinear|einsum|mv|dot|addmv|tensordot",
     NodeRule("gemm", NodeSaves.FACTORS)),
    (r"conv(transpose|_transpose)?[123]d", NodeRule("conv", NodeSaves.FACTORS)),
    (r"\w*layer_?norm|\w*rms_?norm|\w*group_?norm|\w*instance_?norm([123]d)?|\w*batch_?norm([123]d)?",
     NodeRule("norm", NodeSaves.STATISTICS)),
    (r"(log_?)?softmax", NodeRule("softmax", NodeSaves.RESULT)),
    (r"(alpha|feature)?_?dropout([123]d)?", NodeRule("dropout", NodeSaves.MASK)),
    (r"scaled_dot_product_attention", NodeRule("attention", NodeSaves.ATTENTION)),
    (r"embedding(_?bag)?|gather|index_select|take|take_along_dim|index|scatter_?|scatter_add_?|"
     r"index_add_?|index_copy_?|index_put_?", NodeRule("embedding", NodeSaves.INDICES)),
    (r"(adaptive_?)?max_?pool[123]d", NodeRule("pool", NodeSaves.INPUT_AND_INDICES)),
    (r"(adaptive_?)?avg_?pool[123]d", NodeRule("pool")),
    (r"cross_?entropy(_?loss)?|nll_?loss|mse_?loss|bce\w*loss", NodeRule("loss", NodeSaves.INPUTS)),
    (r"gelu|silu|swish|\w*geluactivation|newgelu\w*|hardswish|softplus|leaky_?relu|elu|mish|glu|"
     r"pow|square|abs|log|log2|log1p|sin|cos|maximum|minimum|max|min|clamp|clip|prelu|atan2",
     NodeRule("elementwise", NodeSaves.INPUTS)),
    (r"relu_?|relu6|tanh|sigmoid|exp|sqrt|rsqrt|hardtanh|threshold|reciprocal",
     NodeRule("elementwise", NodeSaves.RESULT)),
    (r"i?mul_?|multiply", NodeRule("elementwise", NodeSaves.FACTORS)),
    (r"i?(true)?div_?|divide", NodeRule("elementwise", NodeSaves.QUOTIENT)),
    (r"where|masked_fill_?|masked_select|masked_scatter",
     NodeRule("elementwise", NodeSaves.INDICES)),
    (r"i?add_?", NodeRule("residual")),
    (r"cat|concat|concatenate|stack|clone|repeat|repeat_interleave|pad|roll|flip|copy_",
     NodeRule("copy")),
    (r"logsumexp|prod|cumprod|norm|var|std|var_mean", NodeRule("reduction", NodeSaves.ALL)),
    (r"sum|mean|cumsum|argmax|argmin|topk|sort|argsort|any|all|count_nonzero",
     NodeRule("reduction")),
    (r"ones|zeros|full|empty|arange|tensor|ones_like|zeros_like|full_like|new_\w+|linspace|eye|"
     r"scalar_tensor|tril|triu|one_hot|rand\w*", NodeRule("fill")),
    (r"i?sub_?|rsub|neg|subtract|lerp|round|floor|ceil|sign|eq|ne|lt|le|gt|ge|logical_\w+|"
     r"bitwise_\w+|not|invert|and_?|or_?|xor|floordiv|floor_divide|remainder|mod|isnan|isinf",
     NodeRule("elementwise")),
)
_COMPILED = tuple((re.compile(pattern), operation) for pattern, operation in _RULES)
_OTHER = NodeRule("other", NodeSaves.ALL, guessed=True)


def operation_of(name: str) -> NodeRule:
    """Return the rule of an operation such as ``layernorm`` or ``addmm``.

    One that is not known is taken to save all it reads and writes: at worst its plan keeps more
    than it must.
    """
    found = (operation for pattern, operation in _COMPILED if pattern.fullmatch(name))
    return next(found, _OTHER)
