"""GPUs with their host links: what a transfer costs, and where each figure comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from slackswap.errors import InvalidHardware
from slackswap.hardware import WHOLE_PPM, Hardware

#: Fixed time of one transfer, in nanoseconds. An asynchronous copy through a DMA engine pays a
#: launch of about 2 µs, the engine's set-up, and an event that another stream waits for; small
#: pinned copies on PCIe are seen to take 8 to 12 µs whatever their size.
TRANSFER_LATENCY_NS = 10_000

_G = 10**9
_T = 10**12


Basis = Literal["measured", "vendor", "inferred"]


@dataclass(frozen=True, slots=True)
class Figure:
    """What one figure of a device rests on.

    Attributes
    ----------
    fields : tuple of str
        Fields of `Hardware` that it covers.
    basis : str
        ``measured``; ``vendor``: a data sheet's word; ``inferred`` from other devices.
    date : str
        Year or years of the source.
    source : str
        Where it comes from, or what it is inferred from.
    """

    fields: tuple[str, ...]
    basis: Basis
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU of the catalogue.

    Attributes
    ----------
    hardware : Hardware
        Measured link, device memory and peak rates; `flops_per_s` is the dense rate at
        `precision`.
    precision : str
        Number format that `hardware.flops_per_s` is for.
    fp32_flops_per_s : int
        Dense rate of fp32 models. Where tensor cores have a TF32 mode it is that one, since
        cuDNN's convolutions use it by default.
    launch_year : int
        Year of introduction.
    link : str
        Kind of host link.
    link_bytes_per_s : int
        Theoretical rate of the link in one direction.
    figures : tuple of Figure
        What each figure of `hardware` rests on; together they cover all that are stated.
    plain_fp32_flops_per_s : int or None
        Dense rate of fp32 models with TF32 off; None where no source is at hand.
    """

    hardware: Hardware
    precision: str
    fp32_flops_per_s: int
    launch_year: int
    link: str
    link_bytes_per_s: int
    figures: tuple[Figure, ...]
    plain_fp32_flops_per_s: int | None = None

    @property
    def name(self) -> str:
        """Name in the catalogue."""
        return self.hardware.name

    @property
    def source(self) -> str:
        """Where the rates of the device come from."""
        return self._source("flops_per_s")

    @property
    def link_source(self) -> str:
        """Where the link's rates come from."""
        return self._source("h2d_bytes_per_s")

    def _source(self, field: str) -> str:
        figure = self.figure(field)
        return figure.source if figure else ""

    def figure(self, field: str) -> Figure | None:
        """Return what a field of `hardware` rests on; None for one that states nothing."""
        return next((figure for figure in self.figures if field in figure.fields), None)


#: Theoretical bytes per second of a link in one direction, 128b/130b encoding taken off and
#: rounded as vendors quote it.
LINK_BYTES_PER_S: Mapping[str, int] = MappingProxyType(
    {
        "PCIe 3.0 x16": 16 * _G,
        "PCIe 4.0 x16": 31_500_000_000,
        "PCIe 5.0 x16": 63 * _G,
        "NVLink-C2C": 450 * _G,
    }
)


#: What the latency of every entry rests on.
_LATENCY = Figure(
    ("latency_ns",), "inferred", "as of 2026",
    "small pinned copies on PCIe are seen to take 8 to 12 µs whatever their size; 10 taken",
)


def _device(
    name: str,
    *,
    year: int,
    tflops: float,
    precision: str,
    fp32_tflops: float,
    hbm_gb_per_s: float,
    memory_gb: int,
    link: str,
    out_gb_per_s: float,
    in_gb_per_s: float,
    source: str,
    link_source: str,
    link_basis: Basis = "measured",
    link_date: str = "as of 2026",
    contended_ppm: tuple[int, int] = (WHOLE_PPM, WHOLE_PPM),
    contended_source: str = "",
    root_gb_per_s: tuple[float, float] | None = None,
    root_source: str = "",
    host_gb: int | None = None,
    host_source: str = "",
    plain_fp32_tflops: float | None = None,
) -> Device:
    out, back = (None, None) if root_gb_per_s is None else (
        round(rate * _G) for rate in root_gb_per_s
    )
    hardware = Hardware(
        name=name,
        d2h_bytes_per_s=round(out_gb_per_s * _G),
        h2d_bytes_per_s=round(in_gb_per_s * _G),
        latency_ns=TRANSFER_LATENCY_NS,
        host_bytes=None if host_gb is None else host_gb * _G,
        device_bytes=memory_gb * _G,
        flops_per_s=round(tflops * _T),
        memory_bytes_per_s=round(hbm_gb_per_s * _G),
        d2h_contended_ppm=contended_ppm[0],
        h2d_contended_ppm=contended_ppm[1],
        d2h_root_bytes_per_s=out,
        h2d_root_bytes_per_s=back,
    )
    figures = [
        Figure(("flops_per_s", "memory_bytes_per_s", "device_bytes"), "vendor", str(year), source),
        Figure(("d2h_bytes_per_s", "h2d_bytes_per_s"), link_basis, link_date, link_source),
        _LATENCY,
    ]
    if contended_source:
        figures.append(Figure(("d2h_contended_ppm", "h2d_contended_ppm"), "measured", link_date,
                              contended_source))
    if root_source:
        figures.append(Figure(("d2h_root_bytes_per_s", "h2d_root_bytes_per_s"), "measured",
                              link_date, root_source))
    if host_source:
        figures.append(Figure(("host_bytes",), "vendor", str(year), host_source))
    return Device(
        hardware, precision, round(fp32_tflops * _T), year, link, LINK_BYTES_PER_S[link],
        tuple(figures), None if plain_fp32_tflops is None else round(plain_fp32_tflops * _T),
    )


_A100_LINK = "pinned copies on PCIe 4.0 A100 hosts measure 24.8 to 26 GB/s; 25 taken"
_H100_LINK = "pinned copies on PCIe 5.0 H100 hosts measure 52.8 to 55 GB/s; 53 taken"
_GH200_LINK = "346 GB/s measured host to device, 294 back"
#: When links of the newest devices were measured, with nvbandwidth and its like.
_RECENT = "2024 to 2026"

_DEVICES = (
    _device(
        "titan-x", year=2015, tflops=7.0, precision="fp32", fp32_tflops=7.0, hbm_gb_per_s=336.5,
        memory_gb=12, link="PCIe 3.0 x16", out_gb_per_s=12.8, in_gb_per_s=12.8,
        source="NVIDIA GeForce GTX Titan X (Maxwell) data, at boost clock",
        link_source="DMA rate of pinned copies measured by the vDNN authors, 2016",
        link_date="2016", plain_fp32_tflops=7,
    ),
    _device(
        "p100", year=2016, tflops=21.2, precision="fp16", fp32_tflops=10.6, hbm_gb_per_s=732,
        memory_gb=16, link="PCIe 3.0 x16", out_gb_per_s=12.9, in_gb_per_s=11.7,
        source="NVIDIA Tesla P100 white paper (SXM2)",
        link_source="pinned copies, measured each way",
        plain_fp32_tflops=10.6,
    ),
    _device(
        "v100", year=2017, tflops=125, precision="fp16", fp32_tflops=15.7, hbm_gb_per_s=900,
        memory_gb=32, link="PCIe 3.0 x16", out_gb_per_s=12, in_gb_per_s=12,
        source="NVIDIA Tesla V100 data sheet (SXM2, 32 GB)",
        link_source="pinned copies, measured",
        plain_fp32_tflops=15.7,
    ),
    _device(
        "a100-40gb", year=2020, tflops=312, precision="bf16", fp32_tflops=156,
        hbm_gb_per_s=1555, memory_gb=40, link="PCIe 4.0 x16", out_gb_per_s=25, in_gb_per_s=25,
        source="NVIDIA A100 data sheet (SXM, 40 GB)", link_source=_A100_LINK,
        plain_fp32_tflops=19.5,
    ),
    _device(
        "a100-80gb", year=2020, tflops=312, precision="bf16", fp32_tflops=156,
        hbm_gb_per_s=2039, memory_gb=80, link="PCIe 4.0 x16", out_gb_per_s=25, in_gb_per_s=25,
        source="NVIDIA A100 data sheet (SXM, 80 GB)", link_source=_A100_LINK,
        plain_fp32_tflops=19.5,
    ),
    _device(
        "a100-80gb-contended", year=2020, tflops=312, precision="bf16", fp32_tflops=156,
        hbm_gb_per_s=2039, memory_gb=80, link="PCIe 4.0 x16", out_gb_per_s=25, in_gb_per_s=25,
        # The other entries do without, since published results rest on them.
        contended_ppm=(960_000, 480_000), plain_fp32_tflops=19.5,
        contended_source="both ways at once D2H 24 and H2D 11 to 13 GB/s; 24 and 12 taken",
        source="NVIDIA A100 data sheet (SXM, 80 GB)", link_source=_A100_LINK,
    ),
    _device(
        "a100-80gb-shared-host", year=2020, tflops=312, precision="bf16", fp32_tflops=156,
        hbm_gb_per_s=2039, memory_gb=80, link="PCIe 4.0 x16", out_gb_per_s=5.5, in_gb_per_s=5.5,
        plain_fp32_tflops=19.5, source="NVIDIA A100 data sheet (SXM, 80 GB)", link_date=_RECENT,
        link_source="some A100 hosts leave each GPU 5 to 6 GB/s when all of them copy; 5.5 taken",
    ),
    _device(
        "a100-80gb-pcie", year=2021, tflops=312, precision="bf16", fp32_tflops=156,
        hbm_gb_per_s=1935, memory_gb=80, link="PCIe 4.0 x16", out_gb_per_s=25, in_gb_per_s=25,
        source="NVIDIA A100 data sheet (PCIe, 80 GB)", link_source=_A100_LINK,
        plain_fp32_tflops=19.5,
    ),
    _device(
        "h100-sxm", year=2022, tflops=989, precision="bf16", fp32_tflops=494.5,
        hbm_gb_per_s=3350, memory_gb=80, link="PCIe 5.0 x16", out_gb_per_s=53, in_gb_per_s=53,
        source="NVIDIA H100 data sheet (SXM5), dense", link_source=_H100_LINK,
        plain_fp32_tflops=67,
    ),
    _device(
        "h100-pcie", year=2022, tflops=756, precision="bf16", fp32_tflops=378,
        hbm_gb_per_s=2000, memory_gb=80, link="PCIe 5.0 x16", out_gb_per_s=53, in_gb_per_s=53,
        source="NVIDIA H100 data sheet (PCIe), dense", link_source=_H100_LINK,
        plain_fp32_tflops=51,
    ),
    _device(
        "h200", year=2024, tflops=989, precision="bf16", fp32_tflops=494.5, hbm_gb_per_s=4800,
        memory_gb=141, link="PCIe 5.0 x16", out_gb_per_s=53, in_gb_per_s=53,
        source="NVIDIA H200 data sheet (SXM), dense",
        link_basis="inferred", link_source="taken from the H100, which has the same link",
        plain_fp32_tflops=67,
    ),
    _device(
        "gh200-96gb", year=2023, tflops=989, precision="bf16", fp32_tflops=494.5,
        hbm_gb_per_s=4000, memory_gb=96, link="NVLink-C2C", out_gb_per_s=294, in_gb_per_s=346,
        source="NVIDIA GH200 data sheet (96 GB HBM3), dense", link_source=_GH200_LINK,
        plain_fp32_tflops=67,
    ),
    _device(
        "gh200-144gb", year=2024, tflops=989, precision="bf16", fp32_tflops=494.5,
        hbm_gb_per_s=4900, memory_gb=144, link="NVLink-C2C", out_gb_per_s=294, in_gb_per_s=346,
        source="NVIDIA GH200 data sheet (144 GB HBM3e), dense", link_source=_GH200_LINK,
        plain_fp32_tflops=67,
    ),
    _device(
        "gh200", year=2023, tflops=989, precision="bf16", fp32_tflops=494.5,
        hbm_gb_per_s=4000, memory_gb=96, link="NVLink-C2C", out_gb_per_s=297, in_gb_per_s=375,
        source="NVIDIA GH200 data sheet (96 GB HBM3), dense", link_date=_RECENT,
        link_source="one GH200 alone in its node: 375 GB/s host to device, 297 back",
        host_gb=480, host_source="NVIDIA GH200 data sheet: up to 480 GB of LPDDR5X",
        plain_fp32_tflops=67,
    ),
    _device(
        "gh200-quad", year=2023, tflops=989, precision="bf16", fp32_tflops=494.5,
        hbm_gb_per_s=4000, memory_gb=96, link="NVLink-C2C", out_gb_per_s=170, in_gb_per_s=415,
        source="NVIDIA GH200 data sheet (96 GB HBM3), dense", link_date=_RECENT,
        link_source="a GPU of a node with four: 411 to 421 GB/s host to device, 170 back",
        contended_ppm=(500_000, 500_000), contended_source="both ways at once about half of each",
        root_gb_per_s=(4 * 170, 4 * 415),
        root_source="the same rates when all four GPUs copy, so four times one GPU's",
        plain_fp32_tflops=67,
    ),
    _device(
        "gb200", year=2024, tflops=2500, precision="bf16", fp32_tflops=1250,
        hbm_gb_per_s=8000, memory_gb=186, link="NVLink-C2C", out_gb_per_s=176, in_gb_per_s=176,
        source="NVIDIA GB200 NVL72 data sheet, a GPU of its 72, dense", link_date=_RECENT,
        link_source="176 GB/s while others copy too; taken both ways, as 900 are claimed for both "
        "together",
    ),
    _device(
        "gb300", year=2025, tflops=2500, precision="bf16", fp32_tflops=1250,
        hbm_gb_per_s=8000, memory_gb=288, link="NVLink-C2C", out_gb_per_s=193, in_gb_per_s=211,
        source="NVIDIA GB300 NVL72 data sheet, a GPU of its 72, dense", link_date=_RECENT,
        link_source="one of four GPUs copying alone: 211 GB/s host to device, 193 back",
        root_gb_per_s=(4 * 183, 4 * 172),
        root_source="all four at once 182 to 184 GB/s each device to host, 169 to 175 back; four "
        "times 183 and 172",
    ),
    _device(
        "gb300-quad", year=2025, tflops=2500, precision="bf16", fp32_tflops=1250,
        hbm_gb_per_s=8000, memory_gb=288, link="NVLink-C2C", out_gb_per_s=183, in_gb_per_s=172,
        source="NVIDIA GB300 NVL72 data sheet, a GPU of its 72, dense", link_date=_RECENT,
        link_source="each of four GPUs copying at once: 182 to 184 GB/s device to host, 169 to "
        "175 back; 183 and 172 taken",
    ),
    _device(
        "l4", year=2023, tflops=121, precision="bf16", fp32_tflops=60, hbm_gb_per_s=300,
        memory_gb=24, link="PCIe 4.0 x16", out_gb_per_s=25, in_gb_per_s=25,
        source="NVIDIA L4 data sheet, dense", link_basis="inferred",
        link_source="no measurement found; taken from the A100, which has the same link",
        plain_fp32_tflops=30.3,
    ),
    _device(
        "rtx3090", year=2020, tflops=71, precision="fp16", fp32_tflops=35.6, hbm_gb_per_s=936,
        memory_gb=24, link="PCIe 4.0 x16", out_gb_per_s=26, in_gb_per_s=26,
        source="NVIDIA Ampere GA102 white paper, dense, fp32 accumulation",
        link_source="pinned copies, measured",
        plain_fp32_tflops=35.6,
    ),
    _device(
        "rtx4090", year=2022, tflops=165, precision="fp16", fp32_tflops=82.6, hbm_gb_per_s=1008,
        memory_gb=24, link="PCIe 4.0 x16", out_gb_per_s=26, in_gb_per_s=26,
        source="NVIDIA Ada white paper, dense, fp32 accumulation",
        link_source="pinned copies, measured",
        plain_fp32_tflops=82.6,
    ),
    _device(
        "mi300x", year=2023, tflops=1307, precision="bf16", fp32_tflops=653.7,
        hbm_gb_per_s=5300, memory_gb=192, link="PCIe 5.0 x16", out_gb_per_s=53, in_gb_per_s=53,
        source="AMD Instinct MI300X data sheet, dense",
        link_source="no measurement found; taken from the H100, which has the same link",
        link_basis="inferred", plain_fp32_tflops=163.4,
    ),
)
_BY_NAME: Mapping[str, Device] = MappingProxyType({device.name: device for device in _DEVICES})

#: What profiles are priced for, and planned on, unless they say otherwise.
DEFAULT_HARDWARE: Hardware = _BY_NAME["a100-80gb"].hardware


def find_device(name: str) -> Device | None:
    """Return the catalogue entry of this name, or None."""
    return _BY_NAME.get(name)


def find_hardware(name: str) -> Hardware | None:
    """Return the hardware of this name, or None."""
    device = _BY_NAME.get(name)
    return None if device is None else device.hardware


def hardware_names() -> tuple[str, ...]:
    """Return the names of the catalogue, oldest device first within a vendor."""
    return tuple(_BY_NAME)


def compute_growth(old: Device, new: Device) -> Fraction:
    """How many times the peak arithmetic rate of `old` that of `new` is, each at its precision."""
    return Fraction(_rate(new.hardware.flops_per_s), _rate(old.hardware.flops_per_s))


def link_growth(old: Device, new: Device) -> Fraction:
    """How many times the theoretical link rate of `old` that of `new` is."""
    return Fraction(new.link_bytes_per_s, old.link_bytes_per_s)


def for_fp32(hardware: Hardware, *, tf32: bool = True) -> Hardware:
    """Return the hardware with the arithmetic rate of fp32 models.

    The device is known by its name, of which `Hardware.with_link` and `Hardware.with_duplex` keep
    the first word. A hardware outside the catalogue is taken to state its fp32 rate already.

    Raises
    ------
    InvalidHardware
        With `tf32` false, when the catalogue has no source for the rate without TF32.
    """
    device = _BY_NAME.get(hardware.name.partition(" ")[0])
    if device is None:
        return hardware
    rate = device.fp32_flops_per_s if tf32 else device.plain_fp32_flops_per_s
    if rate is None:
        raise InvalidHardware("no source tells its rate of fp32 without TF32",
                              where=f"hardware {hardware.name!r}", fix="use another device")
    return replace(hardware, flops_per_s=rate)


def _rate(flops_per_s: int | None) -> int:
    # Every device of the catalogue states its rate.
    assert flops_per_s is not None
    return flops_per_s
