"""Run plans in PyTorch: compile one to a training step, and compare it with its prediction."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
