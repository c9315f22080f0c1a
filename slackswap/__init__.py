"""Plan which saved activations of a training step to keep, swap or recompute, and judge the plans.

The names of ``__init__.pyi`` are imported on first use, so that ``import slackswap`` stays light.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
