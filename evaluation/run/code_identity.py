"""Identity of the code behind a plan or a bound: an edit is not answered by old results."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

#: Rooms whose modules decide what a planner or a bound answers. The rest of the ground floor is
#: not among them: the cost model has a version of its own.
_ROOMS = ("slackswap.analysis", "slackswap.planners", "slackswap.search")


@lru_cache(maxsize=512)
def code_digest(module: str) -> str:
    """Return a digest of a module and of the planners and searches that it imports, at any depth.

    Parameters
    ----------
    module : str
        Importable name.

    Returns
    -------
    str
        Hexadecimal digits; empty when its source cannot be read.
    """
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in sources:
            continue
        text = _source(name)
        if text is None:
            continue
        sources[name] = text
        waiting += [found for found in _imports(text) if found.startswith(_ROOMS)]
    if module not in sources:
        return ""
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name] + b"\0")
    return digest.hexdigest()[:16]


def _source(name: str) -> bytes | None:
    # A planner from a file is loaded already, under a name that cannot be found again.
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        origin = None if spec is None else spec.origin
    try:
        return None if origin is None else Path(origin).read_bytes()
    except OSError:
        return None


def _imports(source: bytes) -> Iterator[str]:
    """Yield the modules a source names in its imports, and what may be modules among the names."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
