"""Reading and writing files safely: size limits, strict JSON, atomic replacement."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

from slackswap.errors import InvalidFile, SlackSwapError
from slackswap.quantities import shown

T = TypeVar("T")

#: Largest text, after decompression, that is read into memory.
MAX_BYTES = 512 * 2**20

_GZIP_MAGIC = b"\x1f\x8b"


def path_text(path: object) -> str:
    """Return a path as text.

    Raises
    ------
    InvalidFile
        When it is no path: a number would name an open file, and no name holds a zero byte.
    """
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str) or "\0" in text:
        raise InvalidFile(f"{shown(path)} is not a path", where="path",
                          fix="give the name of a file as text or as a pathlib.Path")
    return text


def read_bytes(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a plain or gzip-compressed file whole.

    Parameters
    ----------
    path : path-like
        The file. Compression is recognised by content, not by name.
    max_bytes : int
        Largest size accepted, after decompression.

    Raises
    ------
    InvalidFile
        When the file cannot be read, is truncated, or is larger than `max_bytes`.
    """
    place = path_text(path)
    try:
        with open(place, "rb") as handle:
            compressed = handle.read(2) == _GZIP_MAGIC
            handle.seek(0)
            stream: IO[bytes] | gzip.GzipFile = (
                gzip.GzipFile(fileobj=handle) if compressed else handle
            )
            data = stream.read(max_bytes + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidFile(
            f"the gzip data is damaged or cut short ({error})",
            where=place,
            fix="copy or download the file again",
        ) from error
    except OSError as error:
        raise InvalidFile(
            f"cannot be read ({error.strerror or error})",
            where=place,
            fix="check the path and its permissions",
        ) from error
    if len(data) > max_bytes:
        raise InvalidFile(
            f"holds more than {max_bytes:,} bytes after decompression",
            where=place,
            fix="split it, or check that it is the file you meant",
        )
    return data


def read_text(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> str:
    """Read a plain or gzip-compressed UTF-8 file whole; errors as in `read_bytes`."""
    try:
        return read_bytes(path, max_bytes=max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(
            f"is not UTF-8 text (byte {error.start})",
            where=os.fspath(path),
            fix="save it as UTF-8",
        ) from error


def parse_json(text: str, *, where: str) -> Any:
    """Parse strict JSON: no NaN or Infinity, no key twice, no endless nesting.

    Raises
    ------
    InvalidFile
        Naming `where`, with line and column when the syntax is at fault.
    """

    def reject_constant(constant: str) -> NoReturn:
        raise InvalidFile(
            f"{constant} is not a JSON number", where=where, fix="write a finite number"
        )

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [key for key, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidFile(f"key {twice!r} stands twice in one object", where=where,
                              fix="remove one of the two")
        return found

    if not text.strip():
        raise InvalidFile("is empty", where=where, fix="check that it was written to the end")
    try:
        return json.loads(text, parse_constant=reject_constant, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        raise InvalidFile(
            # Some of these messages end in "at" themselves.
            f"is not JSON: {error.msg[0].lower()}{error.msg[1:].removesuffix(' at')} at line "
            f"{error.lineno}, column {error.colno}",
            where=where,
            fix="correct that line, or write the file again",
        ) from error
    except RecursionError as error:
        raise InvalidFile(
            "is nested too deeply to be one of our files", where=where,
            fix="check that it is the file you meant",
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidFile(
            "holds a number of thousands of digits", where=where,
            fix="write numbers of at most 18 digits",
        ) from error


def read_json(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Read one strict JSON document, plain or gzip-compressed."""
    return parse_json(read_text(path, max_bytes=max_bytes), where=os.fspath(path))


def load_document(path: str | os.PathLike[str], parse: Callable[[Any], T]) -> T:
    """Read a JSON file and hand the document to `parse`, whose errors then name the file."""
    document = read_json(path)
    try:
        return parse(document)
    except SlackSwapError as error:
        place = f"{os.fspath(path)}: {error.where}" if error.where else os.fspath(path)
        raise type(error)(error.what, where=place, fix=error.fix) from error


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces it on success and vanishes on failure.

    Raises
    ------
    InvalidFile
        When the place cannot be written.
    """
    target = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes the file private; give it the permissions open() would have given.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file can be written to, before the work that would be lost by it.

    Raises
    ------
    InvalidFile
        When it is a folder, its folder is missing, or nothing may be written there.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidFile("is a folder", where=str(target), fix="name a file")
    if not target.parent.is_dir():
        raise InvalidFile("cannot be written: its folder is missing", where=str(target),
                          fix=f"make {target.parent} first")
    # Files are replaced, not opened, so that it is the folder that must be writable.
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidFile("cannot be written: its folder is read-only", where=str(target),
                          fix="name a file in a folder of yours")


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all; a name ending in ``.gz`` is compressed."""
    if os.fspath(path).endswith(".gz"):
        # A fixed time stamp and no name: equal content gives equal files.
        data = gzip.compress(data, mtime=0)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text whole or not at all; a name ending in ``.gz`` is compressed."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write one JSON document whole or not at all."""
    write_text(path, json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def canonical_json(document: Any) -> bytes:
    """Canonical bytes of a JSON document: keys sorted, no white space, UTF-8."""
    return json.dumps(
        document, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def _unwritable(path: Path, error: OSError) -> InvalidFile:
    return InvalidFile(
        f"cannot be written ({error.strerror or error})",
        where=str(path),
        fix="check the folder, its permissions and the free space",
    )


def plain(value: Any, not_finite: Callable[[float], Any] = float) -> Any:
    """Return what a planner reports as JSON can hold it: NumPy's arrays and scalars, paths, sets.

    Parameters
    ----------
    value : object
        Anything; what is not known becomes text.
    not_finite : callable
        Makes infinities and not-a-number into what is wanted in their place.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, not_finite) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return [plain(item, not_finite) for item in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [plain(item, not_finite) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else not_finite(float(value))
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if hasattr(value, "tolist"):
        return plain(value.tolist(), not_finite)
    return str(value)


def jsonable(value: Any) -> Any:
    """Return a value as strict JSON can hold it, with infinities as text."""
    return plain(value, json.dumps)
