"""Analytic profiles of convolutional networks in fp32: VGG-16 and ResNet-50.

Saved are the inputs of convolutions and dense layers, the inputs of batch norms, and the results
of ReLUs, which work in place: a convolution or norm and the ReLU on its result are one operation
here, since they share one storage. Max pooling finds its maxima again from input and result, as
cuDNN does, unless indices are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from slackswap.errors import SlackSwapError
from slackswap.hardware import Hardware
from slackswap.profile import Profile
from slackswap.profiles.catalogue import find_hardware, for_fp32
from slackswap.profiles.generators import prices as table
from slackswap.profiles.generators.prices import DEFAULT_PRICES, FLAG, FP32, INDEX, Prices
from slackswap.profiles.generators.tape import Tape


@dataclass(frozen=True, slots=True)
class ConvNet:
    """A convolutional network for 224 x 224 images and 1000 classes.

    Attributes
    ----------
    name : str
        For people.
    family : str
        ``vgg``: 3x3 convolutions, then three dense layers; ``resnet``: bottleneck blocks.
    stages : tuple of (int, int)
        Layers or blocks of each stage, and the channels they work on (a bottleneck's result has
        four times as many).
    """

    name: str
    family: Literal["vgg", "resnet"]
    stages: tuple[tuple[int, int], ...]


VGG16 = ConvNet("VGG-16", "vgg", ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)))
RESNET50 = ConvNet("ResNet-50", "resnet", ((3, 64), (4, 128), (6, 256), (3, 512)))

_IMAGE = 224
_CLASSES = 1000
_DENSE = 4096
_TITAN_X = find_hardware("titan-x")


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map: its tensor, channels, and pixels along one edge."""

    tensor: int
    channels: int
    edge: int


class _Net:
    """Layers of a network written on a tape; counts parameters on the way."""

    def __init__(self, tape: Tape, batch: int, *, pool_indices: bool) -> None:
        self.tape = tape
        self.batch = batch
        self.pool_indices = pool_indices
        self.parameters = 0
        self._layer = -1

    def begin(self, name: str) -> None:
        """Start the next layer."""
        self._layer += 1
        self.tape.begin(self._layer, name)

    def nbytes(self, channels: int, edge: int) -> int:
        """Bytes of a feature map of the batch."""
        return FP32 * self.batch * channels * edge * edge

    def conv(
        self, name: str, x: _Map, channels: int, kernel: int, *, stride: int = 1,
        relu: bool = False, bias: bool = False, first: bool = False,
    ) -> _Map:
        """Append a padded convolution, with a bias and a ReLU in place if asked for."""
        edge = x.edge // stride
        nbytes = self.nbytes(channels, edge)
        price = table.convolution(
            self.batch * edge * edge, x.channels, channels, kernel, stride=stride,
            nbytes_in=self.tape.nbytes(x.tensor), bias=bias, input_gradient=not first,
        )
        y = self.tape.tensor(name, nbytes)
        self.tape.op(
            name, "conv", table.in_place_relu(price, nbytes) if relu else price,
            reads=(x.tensor,), writes=(y,), saves=(x.tensor, y) if relu else (x.tensor,),
        )
        self.parameters += kernel * kernel * x.channels * channels + bias * channels
        return _Map(y, channels, edge)

    def norm(self, name: str, x: _Map, *, relu: bool) -> _Map:
        """Append a batch norm, with a ReLU in place if asked for."""
        nbytes = self.tape.nbytes(x.tensor)
        y = self.tape.tensor(name, nbytes)
        statistics = self.tape.tensor(
            f"{name}.statistics", 2 * FP32 * x.channels, differentiable=False
        )
        price = table.batch_norm(nbytes)
        saves = (x.tensor, statistics)
        self.tape.op(
            name, "norm", table.in_place_relu(price, nbytes) if relu else price,
            reads=(x.tensor,), writes=(y, statistics), saves=(*saves, y) if relu else saves,
        )
        self.parameters += 2 * x.channels
        return _Map(y, x.channels, x.edge)

    def pool(self, name: str, x: _Map) -> _Map:
        """Append a max pooling that halves both edges."""
        edge = x.edge // 2
        nbytes = self.nbytes(x.channels, edge)
        y = self.tape.tensor(name, nbytes)
        writes: tuple[int, ...] = (y,)
        saves = (x.tensor, y)
        if self.pool_indices:
            indices = self.tape.tensor(
                f"{name}.indices", nbytes // FP32 * INDEX, differentiable=False
            )
            writes, saves = (y, indices), (x.tensor, indices)
        self.tape.op(name, "pool", table.pool(self.tape.nbytes(x.tensor), nbytes),
                     reads=(x.tensor,), writes=writes, saves=saves)
        return _Map(y, x.channels, edge)

    def mean(self, name: str, x: _Map) -> _Map:
        """Append the mean over all pixels; its backward needs nothing but sizes."""
        nbytes = self.nbytes(x.channels, 1)
        y = self.tape.tensor(name, nbytes)
        whole = self.tape.nbytes(x.tensor)
        price = table.Price(table.stream(whole + nbytes), table.stream(whole + nbytes))
        self.tape.op(name, "pool", price, reads=(x.tensor,), writes=(y,))
        return _Map(y, x.channels, 1)

    def add_relu(self, name: str, x: _Map, branch: _Map) -> _Map:
        """Append a residual sum and its ReLU, whose gradient goes to both."""
        nbytes = self.tape.nbytes(x.tensor)
        y = self.tape.tensor(name, nbytes)
        self.tape.op(
            name, "residual", table.in_place_relu(table.residual(nbytes), nbytes),
            reads=(x.tensor, branch.tensor), writes=(y,), saves=(y,), passes_gradient=True,
        )
        return _Map(y, x.channels, x.edge)

    def dense(self, name: str, x: _Map, width: int, *, relu: bool = False) -> _Map:
        """Append a dense layer with bias on a flattened map."""
        inner = x.channels * x.edge * x.edge
        y = self.tape.tensor(name, self.nbytes(width, 1))
        price = table.gemm(self.batch, inner, width, FP32, bias=True)
        nbytes = self.tape.nbytes(y)
        self.tape.op(
            name, "gemm", table.in_place_relu(price, nbytes) if relu else price,
            reads=(x.tensor,), writes=(y,), saves=(x.tensor, y) if relu else (x.tensor,),
        )
        self.parameters += inner * width + width
        return _Map(y, width, 1)

    def dropout(self, name: str, x: _Map) -> _Map:
        """Append the drawing of a mask, which can run again, and its application."""
        nbytes = self.tape.nbytes(x.tensor)
        elements = nbytes // FP32
        mask = self.tape.tensor(f"{name}.mask", FLAG * elements, differentiable=False)
        self.tape.op(f"{name}.mask", "random", table.dropout_mask(elements), writes=(mask,))
        y = self.tape.tensor(name, nbytes)
        self.tape.op(name, "dropout", table.dropout(nbytes, elements), reads=(x.tensor, mask),
                     writes=(y,), saves=(mask,))
        return _Map(y, x.channels, x.edge)

    def loss(self, x: _Map) -> int:
        """Append log-softmax and negative log likelihood; return the loss."""
        nbytes = self.tape.nbytes(x.tensor)
        probabilities = self.tape.tensor("log_softmax", nbytes)
        self.tape.op("log_softmax", "loss", table.softmax(nbytes, nbytes), reads=(x.tensor,),
                     writes=(probabilities,), saves=(probabilities,))
        labels = self.tape.tensor("labels", INDEX * self.batch, differentiable=False)
        loss = self.tape.tensor("loss", FP32)
        self.tape.op("loss", "loss", table.nll(self.batch, _CLASSES),
                     reads=(probabilities, labels), writes=(loss,),
                     saves=(probabilities, labels))
        return loss


def _vgg(net: _Net, model: ConvNet, x: _Map) -> int:
    for stage, (layers, channels) in enumerate(model.stages, start=1):
        for layer in range(1, layers + 1):
            net.begin(f"conv{stage}_{layer}")
            x = net.conv("conv", x, channels, 3, relu=True, bias=True,
                         first=stage == layer == 1)
        net.begin(f"pool{stage}")
        x = net.pool("pool", x)
    for index in (1, 2):
        net.begin(f"fc{index}")
        x = net.dropout("dropout", net.dense("dense", x, _DENSE, relu=True))
    net.begin("fc3")
    x = net.dense("dense", x, _CLASSES)
    return net.loss(x)


def _resnet(net: _Net, model: ConvNet, x: _Map) -> int:
    net.begin("stem")
    x = net.norm("norm", net.conv("conv", x, 64, 7, stride=2, first=True), relu=True)
    x = net.pool("pool", x)
    for stage, (blocks, channels) in enumerate(model.stages, start=1):
        for block in range(1, blocks + 1):
            net.begin(f"block{stage}_{block}")
            x = _bottleneck(net, x, channels, stride=2 if block == 1 < stage else 1,
                            widen=block == 1)
    net.begin("head")
    return net.loss(net.dense("dense", net.mean("mean", x), _CLASSES))


def _bottleneck(net: _Net, x: _Map, channels: int, *, stride: int, widen: bool) -> _Map:
    """Append a block: 1x1, 3x3 (with the stride), 1x1, and a 1x1 on the skip where sizes change."""
    y = net.norm("norm1", net.conv("conv1", x, channels, 1), relu=True)
    y = net.norm("norm2", net.conv("conv2", y, channels, 3, stride=stride), relu=True)
    y = net.norm("norm3", net.conv("conv3", y, 4 * channels, 1), relu=False)
    if widen:
        skip = net.conv("skip.conv", x, 4 * channels, 1, stride=stride)
        x = net.norm("skip.norm", skip, relu=False)
    return net.add_relu("residual", x, y)


_LAYERS: dict[str, Callable[[_Net, ConvNet, _Map], int]] = {"vgg": _vgg, "resnet": _resnet}


def convnet_profile(
    model: ConvNet,
    *,
    batch: int,
    hardware: Hardware | None = None,
    prices: Prices = DEFAULT_PRICES,
    pool_indices: bool = False,
    name: str | None = None,
) -> Profile:
    """Return one fp32 training step of a convolutional network, priced by the roofline.

    Parameters
    ----------
    model : ConvNet
        The network.
    batch : int
        Images.
    hardware : Hardware, optional
        What it runs on; None: a Titan X. Its fp32 rate is the catalogue's, where it is listed.
    prices : Prices
        Rates of the kernels.
    pool_indices : bool
        Whether max pooling saves an int64 index for each result, as PyTorch's does, instead of
        reading its result again.
    name : str, optional
        Name of the profile.

    Raises
    ------
    SlackSwapError
        When the batch is not positive.
    InvalidHardware
        When the hardware states no rates.
    """
    if batch < 1:
        raise SlackSwapError(
            f"batch {batch} must be positive", where=f"model {model.name!r}",
            fix="write 1 or more images",
        )
    device = hardware or _TITAN_X
    assert device is not None  # the catalogue has it
    tape = Tape(for_fp32(device), prices)
    image = tape.tensor("image", FP32 * batch * 3 * _IMAGE**2, differentiable=False)
    net = _Net(tape, batch, pool_indices=pool_indices)
    root = _LAYERS[model.family](net, model, _Map(image, 3, _IMAGE))
    return tape.profile(
        name or model.name,
        root=root,
        provenance={
            "model": model.name,
            "batch": batch,
            "dtype": "fp32",
            "hardware": device.name,
            "times": "roofline of slackswap.profiles.generators.prices",
            "prices": asdict(prices),
            "parameters": net.parameters,
        },
        static_bytes=net.parameters * table.FP32_MOMENTUM_BYTES_PER_PARAMETER,
    )
