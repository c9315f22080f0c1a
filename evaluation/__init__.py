"""Judging planners: suites, stored results, claims, figures, reports, and the check kit.

The names of ``__init__.pyi`` are imported on first use,
so that one tool does not pay for another's libraries.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
