"""Profiles and where they come from: library, generators, capture, importers.

The names of ``__init__.pyi`` are imported on first use,
so that importing one generator does not import all.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
