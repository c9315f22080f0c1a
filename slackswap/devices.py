"""Whether a profile's times and the hardware it is planned on are of one device."""

from __future__ import annotations

from collections.abc import Mapping

from slackswap.hardware import Hardware
from slackswap.profile import Profile


def device_of(profile: Profile) -> str:
    """Return the device a profile's times are of, by its provenance; empty when it says nothing.

    A capture on a GPU notes the link it measured, one on a CPU that it ran there; other profiles
    name the hardware they are priced or were measured for.
    """
    provenance = profile.provenance
    link = provenance.get("link")
    measured = link.get("hardware") if isinstance(link, Mapping) else None
    if isinstance(measured, Mapping) and isinstance(measured.get("name"), str):
        return str(measured["name"]).strip()
    if isinstance(provenance.get("hardware"), str):
        return str(provenance["hardware"]).strip()
    return "cpu" if provenance.get("device") == "cpu" else ""


def mixed_devices(profile: Profile, hardware: Hardware) -> str:
    """Return a warning when times and link are of different devices; empty when they are not.

    A hardware whose name begins with the device's, as ``a100-80gb link x2`` does, is a variant of
    it: there the difference is what is asked about.
    """
    device = device_of(profile)
    if not device or device.split()[0] == hardware.name.partition(" ")[0]:
        return ""
    if device == "cpu":
        return (
            f"the times of {profile.name} were measured on a CPU, the link is that of "
            f"{hardware.name}: no device has both, so take the figures for a pattern only"
        )
    return (
        f"the times of {profile.name} are those of {device}, the link is that of {hardware.name}: "
        f"no device has both; plan on {device}, or capture or price the profile for {hardware.name}"
    )
