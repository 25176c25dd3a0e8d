"""Files: committed atomically, and how tables and arrays become bytes."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from upath import UPath

from plumbline.errors import StorageError

# Not in the standard library; Linux alone has it.
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}\.tmp")
_HOUR_S = 3600.0


def commit_bytes(path: UPath, data: bytes) -> None:
    """Put `data` at `path` so that a reader, or a crash, sees the old content or the new, whole.

    On a disk: a temporary file in the same folder, fsync, atomic replace, fsync of the folder. On an object store a
    put is atomic by itself.

    Raises
    ------
    StorageError
        If the disk is full, read-only or failing, or the object store refuses or cannot be reached; the old content is
        intact and the temporary file is gone.
    """
    try:
        if path.protocol in ("", "file"):
            _commit_local(Path(path.path), data)
        else:
            _commit_remote(path, data)
    except OSError as error:
        raise StorageError(
            "could not be written; what was there before is intact",
            where=path,
            found=f"{type(error).__name__}: {error.strerror or error}",
            expected="a writable place with room for " + f"{len(data):,} bytes",
            hint="free some space or choose another `storage.root` in the audit file",
        ) from error


def move_into_place(unfinished: Path, target: Path) -> None:
    """Give a finished file or folder its name, so that a reader, or a crash, sees it whole or not at all.

    Its bytes are sent to the disk before the name is. Both lie in the same folder; a target folder must be absent or
    empty.

    Raises
    ------
    OSError
        As the system says it; `unfinished` is still there then. That a disk did not take a folder's files is said by
        Linux from 5.8 on; other systems do not say it.
    """
    if unfinished.is_dir():
        _sync_files_below(unfinished)
    else:
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
    unfinished.replace(target)
    _sync_folder(target.parent)


def _commit_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def sweep(root: UPath, *, now: float) -> int:
    """Remove what a process left unfinished below a folder when it was killed; return how many files that were.

    Files of the last hour stay: another process may be writing them.
    """
    if root.protocol not in ("", "file"):
        return 0
    files = [Path(folder, name) for folder, _, names in os.walk(str(root)) for name in names]
    swept = 0
    for path in (each for each in files if _TEMPORARY.fullmatch(each.name)):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < now - _HOUR_S:
                path.unlink()
                swept += 1
    return swept


def _commit_remote(path: UPath, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError:
        raise
    except Exception as error:
        # What a store's client raises where there are no keys, or no server, is of its own making.
        raise OSError(f"{type(error).__name__}: {error}") from error


_ANSWERS_S = 30.0


def _try_to_keep(path: UPath) -> None:
    path.write_bytes(b"")
    path.unlink()


def _within(seconds: float, call: Callable[[], Any], root: UPath) -> Any:
    """Return what a call gives; one that has not ended by then is left to itself."""
    done: Future[Any] = Future()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name=f"asking {root}", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        raise StorageError(
            "the storage root takes connections and does not answer",
            where=root,
            found=f"nothing within {seconds:.0f} s",
            hint="look at the store, and at the endpoint in the environment: see docs/scale.md",
        ) from None


def require_reachable(root: UPath, *, writable: bool = False) -> None:
    """Refuse a storage root on an object store that does not answer, before anything is computed for it.

    Parameters
    ----------
    writable : bool
        Whether something is put there too, and taken away again.

    Raises
    ------
    StorageError
        If its client is not installed, it has no keys, it cannot be reached, or, where that is asked, nothing can be
        put there.
    """
    if root.protocol in ("", "file"):
        return
    try:
        _within(_ANSWERS_S, root.exists, root)
        if writable:
            _within(_ANSWERS_S, partial(_try_to_keep, root / f".tried-{os.getpid()}"), root)
    except StorageError:
        raise
    except (FileNotFoundError, PermissionError) as error:
        raise StorageError(
            "nothing can be kept under the storage root",
            where=root,
            found=f"{type(error).__name__}: {error}",
            expected="a bucket that is there, and keys that may read, write, list and delete in it",
            hint="make the bucket, or give the keys these rights: see docs/scale.md",
        ) from error
    except Exception as error:
        raise StorageError(
            "the storage root cannot be reached",
            where=root,
            found=f"{type(error).__name__}: {error}",
            hint="keys and endpoint of an object store are read from the environment: see docs/scale.md",
        ) from error


def _sync_files_below(folder: Path) -> None:
    # One flush for all: one for each of a dataset's hundred thousand pictures would take many minutes.
    if _syncfs is None:
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if _syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Tables and arrays as bytes: Parquet and safetensors, the same bytes for the same content


def table_bytes(frame: pl.DataFrame, *, row_group_rows: int | None = None) -> bytes:
    """Return a frame as Parquet (zstd), deterministic for equal frames.

    Parameters
    ----------
    row_group_rows : int, optional
        Rows that are read at once; fewer for tables of texts, of which several groups are read ahead.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=True, row_group_size=row_group_rows)
    return buffer.getvalue()


def table_from_bytes(data: bytes) -> pl.DataFrame:
    """Return the frame that `table_bytes` wrote."""
    return pl.read_parquet(io.BytesIO(data))


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """Return a frame as CSV in which no text cell is a formula to a spreadsheet, see `defused`."""
    return frame.with_columns(defused(pl.col(pl.String))).write_csv().encode()


def defused(cells: pl.Expr) -> pl.Expr:
    """Return cells of text that no spreadsheet runs: one that begins as a formula does gets an apostrophe in front.

    Names, labels and generated texts come from outside. A formula begins with `=`, `+`, `-`, `@`, each narrow or
    wide, a tab or a line break; blanks may stand before it, and where a semicolon or a tab parts cells one of these.
    There a quotation mark within a cell is no more than itself, so that a line break in the text begins a row.
    """
    begun = cells.str.replace_all(r"(^|;)([\s\u{a0}\u{feff}\u{200b}]*[=+\-@＝＋－＠]|[\t\r\n])", "$1'$2")
    return begun.str.replace_all(
        r"""([\t\r\n]|;\s*")((?:[^\S\t\r\n]|["\u{a0}\u{feff}\u{200b}])*[=+\-@＝＋－＠])""", "$1'$2"
    )


def arrays_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return named arrays as safetensors, in name order."""
    from safetensors.numpy import save

    return save({name: np.asarray(arrays[name], order="C") for name in sorted(arrays)})


def arrays_from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays that `arrays_bytes` wrote."""
    from safetensors.numpy import load

    return dict(load(data))


@dataclass(frozen=True)
class StoredRows:
    """An array of a file that `arrays_bytes` wrote, whose rows are read from the disk when they are asked for."""

    path: Path
    name: str
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        from safetensors import SafetensorError, safe_open

        start, stop, _ = rows.indices(len(self))
        try:
            with safe_open(self.path, framework="numpy") as file:
                return np.asarray(file.get_slice(self.name)[start : max(start, stop)])
        except (OSError, SafetensorError) as error:
            raise StorageError(
                "a data file went away while it was read",
                where=self.path,
                found=f"{type(error).__name__}: {error}",
                hint="run this again when nothing else writes this audit",
            ) from error


def arrays_in_file(path: Path) -> dict[str, StoredRows]:
    """Return the arrays of a file that `arrays_bytes` wrote, without reading them."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        names = file.keys()
        return {name: StoredRows(path, name, tuple(file.get_slice(name).get_shape())) for name in names}
