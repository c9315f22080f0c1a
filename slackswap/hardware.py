"""The device and the link: what a transfer costs, and what fits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from slackswap import files
from slackswap.errors import InvalidHardware
from slackswap.frozen import set_fields
from slackswap.quantities import as_number, as_text, as_truth, integer_of, shown

SCHEMA = "slackswap.hardware/1"
_MAX = 2**60

#: A contended rate that is the whole rate: directions do not slow each other.
WHOLE_PPM = 1_000_000
#: Least contended rate: a hundredth.
_LEAST_PPM = 10_000
#: From here on a transfer is too long: `WHOLE_PPM` times its time must stay below 2^62 with
#: contention, the time itself without.
_TOO_MUCH = 2**62


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device with its host link.

    Attributes
    ----------
    name : str
        For people and for the catalogue.
    d2h_bytes_per_s, h2d_bytes_per_s : int
        Link bandwidth from device to host and from host to device.
    latency_ns : int
        Fixed time of every transfer.
    full_duplex : bool
        Whether both directions can run at once.
    host_bytes : int or None
        Pinned host memory for swapped tensors; None is unlimited.
    device_bytes : int or None
        Device memory, reported beside budgets.
    flops_per_s, memory_bytes_per_s : int or None
        Peak arithmetic and memory rates, for the profile generators.
    d2h_contended_ppm, h2d_contended_ppm : int
        Rate of each direction while the other one runs too, in millionths of its own rate, from
        10,000 to 1,000,000 (no slower). Of no effect in half duplex.
    d2h_root_bytes_per_s, h2d_root_bytes_per_s : int or None
        What the host's side of the link moves for all its GPUs together; None where nobody has
        measured it. The cost model does not look at it: see `sharing`.
    """

    name: str
    d2h_bytes_per_s: int
    h2d_bytes_per_s: int
    latency_ns: int = 0
    full_duplex: bool = True
    host_bytes: int | None = None
    device_bytes: int | None = None
    flops_per_s: int | None = None
    memory_bytes_per_s: int | None = None
    d2h_contended_ppm: int = WHOLE_PPM
    h2d_contended_ppm: int = WHOLE_PPM
    d2h_root_bytes_per_s: int | None = None
    h2d_root_bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        place = f"hardware {as_text(self.name, 'hardware: name', InvalidHardware)!r}"
        set_fields(
            self, full_duplex=as_truth(self.full_duplex, f"{place}: full_duplex", InvalidHardware)
        )
        for spec in fields(self):
            if spec.name in ("name", "full_duplex"):
                continue
            value = getattr(self, spec.name)
            if value is None and spec.default is None:
                continue
            least, most, limit = 0, _MAX, "2^60"
            if spec.name.endswith("per_s"):
                least = 1
            elif spec.name.endswith("_ppm"):
                least, most, limit = _LEAST_PPM, WHOLE_PPM, str(WHOLE_PPM)
            fix = f"write an integer from {least} to {limit}"
            number = integer_of(value)
            if number is None or not least <= number <= most:
                raise InvalidHardware(f"{spec.name} is {shown(value)}", where=place, fix=fix)
            set_fields(self, **{spec.name: number})

    @property
    def contended(self) -> bool:
        """Whether copies in both directions at once slow each other."""
        return self.full_duplex and min(self.contended_ppm) < WHOLE_PPM

    @property
    def contended_ppm(self) -> tuple[int, int]:
        """Rates of the two directions, D2H first, while both run: whole in half duplex."""
        if not self.full_duplex:
            return WHOLE_PPM, WHOLE_PPM
        return self.d2h_contended_ppm, self.h2d_contended_ppm

    @property
    def longest_transfer_ns(self) -> int:
        """Longest time of a transfer, alone, that the cost model can follow."""
        return (_TOO_MUCH - 1) // (WHOLE_PPM if self.contended else 1)

    def d2h_ns(self, nbytes: int) -> int:
        """Time in nanoseconds to copy `nbytes` from device to host."""
        return _transfer_ns(nbytes, self.d2h_bytes_per_s, self.latency_ns)

    def h2d_ns(self, nbytes: int) -> int:
        """Time in nanoseconds to copy `nbytes` from host to device."""
        return _transfer_ns(nbytes, self.h2d_bytes_per_s, self.latency_ns)

    def with_link(self, factor: float) -> Hardware:
        """Return a copy whose link is `factor` times as fast in both directions."""
        factor = as_number(factor, "link factor", InvalidHardware, fix="write a number above 0")
        if not 0 < factor < float("inf"):
            raise InvalidHardware(f"{factor:g} is not a positive factor", where="link factor",
                                  fix="write a number above 0")
        return replace(
            self,
            name=f"{self.name} link x{factor:g}",
            d2h_bytes_per_s=round(self.d2h_bytes_per_s * factor),
            h2d_bytes_per_s=round(self.h2d_bytes_per_s * factor),
        )

    def with_duplex(self, full_duplex: bool) -> Hardware:
        """Return a copy with both directions at once, or one at a time."""
        label = "full duplex" if full_duplex else "half duplex"
        return replace(self, name=f"{self.name} {label}", full_duplex=full_duplex)

    def sharing(self, gpus: int) -> Hardware:
        """Return what one of several GPUs has whose copies all run at once.

        Parameters
        ----------
        gpus : int
            GPUs that copy at the same time, this one included.

        Returns
        -------
        Hardware
            Each direction at its own rate, or at an equal share of the root's if that is less.

        Raises
        ------
        InvalidHardware
            When `gpus` is no positive integer, or is above 1 and no root rate is known: what the
            others leave is then anybody's guess.
        """
        count = integer_of(gpus)
        place = f"hardware {self.name!r}"
        if count is None or count < 1:
            raise InvalidHardware(f"{shown(gpus)} GPUs cannot share a link", where=place,
                                  fix="write 1 or more")
        if count == 1:
            return self
        roots = (self.d2h_root_bytes_per_s, self.h2d_root_bytes_per_s)
        if roots == (None, None):
            raise InvalidHardware(
                f"states no rate of its root, so what each of {count} GPUs gets is not known",
                where=place, fix="give d2h_root_bytes_per_s and h2d_root_bytes_per_s, as measured",
            )
        rates = (self.d2h_bytes_per_s, self.h2d_bytes_per_s)
        out, back = (
            own if root is None else max(1, min(own, root // count))
            for own, root in zip(rates, roots, strict=True)
        )
        return replace(self, name=f"{self.name} shared by {count}", d2h_bytes_per_s=out,
                       h2d_bytes_per_s=back)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the schema.

        Contended rates stand there only where they are not whole, those of the root only where
        they are known.
        """
        document = {"schema": SCHEMA, **asdict(self)}
        for key, default in (
            ("d2h_contended_ppm", WHOLE_PPM), ("h2d_contended_ppm", WHOLE_PPM),
            ("d2h_root_bytes_per_s", None), ("h2d_root_bytes_per_s", None),
        ):
            if document[key] == default:  # so that older hashes stand
                del document[key]
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Hardware:
        """Build a hardware from the JSON object of the schema.

        Raises
        ------
        InvalidHardware
            Naming the field and what would fix it.
        """
        from slackswap.schemas.documents import HardwareDocument, validated

        return cls(
            **validated(HardwareDocument, document, InvalidHardware).model_dump(exclude={"schema_"})
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Hardware:
        """Read a hardware from a JSON file, plain or gzip-compressed."""
        return files.load_document(path, cls.from_dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the hardware as JSON, whole or not at all."""
        files.write_json(path, self.to_dict())


def _transfer_ns(nbytes: int, bytes_per_s: int, latency_ns: int) -> int:
    # Negated floor division is the exact integer ceiling.
    return latency_ns - (-nbytes * 10**9 // bytes_per_s)
