"""Capture a PyTorch training step as a profile (needs the ``torch`` extra)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slackswap.errors import Skipped

if TYPE_CHECKING:
    from slackswap.hardware import Hardware
    from slackswap.profile import Profile
    from slackswap.profiles.generators.prices import Prices

__all__ = ["capture"]


def capture(
    target: str | Callable[[], Any],
    *,
    device: str = "fake",
    hardware: Hardware | str | None = None,
    optimizer: str = "adamw",
    iterations: int = 10,
    warmup: int = 3,
    name: str | None = None,
    description: str | None = None,
    prices: Prices | None = None,
    seed: int = 0,
) -> Profile:
    """Capture one training step of a PyTorch model.

    The forward and backward pass are traced into one functional graph. What autograd saves, what
    reads it in backward, and what made it are exact; see ``docs/capture.md``.

    Parameters
    ----------
    target : str or callable
        ``my_pkg.my_module:build``, or the function itself. ``build()`` returns a model or loss
        function, and its example inputs: a tensor, a tuple, or a dict of keyword arguments. The
        model returns a scalar loss or an object with a ``loss``.
    device : str
        ``cpu`` or ``cuda``: build, run and measure there. ``fake``: build without memory, take
        the operators of a CUDA device, price them for `hardware`.
    hardware : Hardware or str, optional
        For ``fake``: what to price for (default: ``a100-80gb``). For ``cuda``: where memory size
        and peak rates come from; its link is measured. For ``cpu``: noted only.
    optimizer : str
        Whose state counts as static memory: ``none``, ``sgd``, ``momentum``, ``adam``,
        ``adamw``, ``mixed-adam``.
    iterations, warmup : int
        Measured iterations, and those thrown away before them. Not used for ``fake``.
    name, description : str, optional
        Of the profile; the name is by default the module's and the function's (unless ``build``).
    prices : Prices, optional
        Rates for ``fake``.
    seed : int
        For PyTorch's random numbers, whose state is put back afterwards.

    Returns
    -------
    Profile
        With source ``measured`` or ``traced``.

    Raises
    ------
    Skipped
        When PyTorch is not installed.
    SlackSwapError
        When the target cannot be loaded, built, traced, or run on the device.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise Skipped(
            "PyTorch is not installed", where="capture", fix="pip install 'slackswap[torch]'"
        ) from error
    from slackswap.profiles.capture.session import capture_step

    return capture_step(
        target,
        device=device,
        hardware=hardware,
        optimizer=optimizer,
        iterations=iterations,
        warmup=warmup,
        name=name,
        description=description,
        prices=prices,
        seed=seed,
    ).profile
