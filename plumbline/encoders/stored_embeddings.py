"""Embeddings that were computed elsewhere: vectors of images, and of texts, read from files in place of a model.

Three layouts are read, of images and of texts alike, from the folder of the address or from its subfolder named as the
dataset:

- what clip-retrieval writes: `img_emb/img_emb_0.npy`, `text_emb/text_emb_0.npy` and `metadata/metadata_0.parquet`
  with the columns `image_path` and `caption`, a file of each a part, rows in one order, float16 and of unit norm
  (rom1504/clip-retrieval, clip_retrieval/clip_inference/writer.py and mapper.py);
- `.npz` with an array of vectors and one of paths or texts;
- Parquet with a column of lists of numbers beside one of paths or texts.
"""

from __future__ import annotations

import math
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import Field

from plumbline.catalog.suites import Suite
from plumbline.checkpoints.addresses import STORED, Address, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles, FolderContents, file_digest, weights_digest
from plumbline.config.parts import Part
from plumbline.datasets.indexes import described, read_table_rows, table_schema, whole_columns
from plumbline.datasets.records import Refusal, printable
from plumbline.datasets.unpacking import BOUNDED_METHODS
from plumbline.digests import digest_json
from plumbline.encoders.encoder import Crop, DualEncoder, EncoderIdentity
from plumbline.encoders.stored_predictions import find_rows
from plumbline.encoders.text_lengths import tokens_beyond
from plumbline.errors import DatasetError, EncodingError, ImageRejected, examples
from plumbline.images.parquet import OpenColumns
from plumbline.reasons import Reason, Reasons, joined, reason

_IMAGES, _TEXTS = "img_emb", "text_emb"
_METADATA = "metadata"
_PART = re.compile(r"_(\d+)\.npy")
_WIDEST = 1 << 16
"""Numbers of an embedding at most: a file of a few bytes repeats a number millions of times."""
_SUFFIXES = (".npz", ".parquet")
_UNIT = 1e-2
"""How far from 1 a norm may be before it is said: float16 rounds the norm of a vector to about 1e-3."""
_SAME_TEXT = 1e-2
"""Largest distance of two vectors of one text, relative to their norm."""


class EmbeddingsSettings(Part):
    """How embeddings are read that were computed elsewhere, with an address `stored:PATH`."""

    texts: str | None = None
    """`stored:PATH` of embeddings of texts, or the address of a checkpoint whose text tower embeds prompts; when absent
    those in the folder itself"""
    image: str = "image_path"
    """column, or array of an npz, with the image's path, its file's key or its sha256"""
    text: str = "caption"
    """column or array with the text"""
    vector: str = "embedding"
    """in npz and Parquet: the array, or the column of lists of numbers"""
    logit_scale: float = Field(default=100.0, gt=0)
    """factor from cosine to logit where no checkpoint says it; every CLIP of OpenAI and most of OpenCLIP have 100"""
    checkpoint: str | None = None
    """address of the checkpoint that gave them: what papers print of it is compared"""


class StoredFiles(NamedTuple):
    """Files of embeddings below a folder."""

    images: tuple[Path, ...]
    texts: tuple[Path, ...]

    @property
    def contents(self) -> tuple[Path, ...]:
        """Return all of them, those of metadata included, once."""
        parts = (*self.images, *self.texts)
        metadata = (_metadata_of(path) for path in parts if path.suffix == ".npy")
        return tuple(sorted({*parts, *(path for path in metadata if path.is_file())}))


@lru_cache(maxsize=64)
def _columns(path: Path, _written: int, array: str, *names: str) -> frozenset[str]:
    """Return which of some names a file has as arrays or columns; the first only as vectors."""
    if path.suffix == ".npz":
        with _opened_npz(path) as arrays:
            return frozenset({array, *names} & set(arrays))
    from pyarrow import types

    try:
        schema = table_schema(path, name=path.name)
    except DatasetError:
        return frozenset()
    lists = {f.name for f in schema if types.is_list(f.type) or types.is_large_list(f.type)}
    lists |= {f.name for f in schema if types.is_fixed_size_list(f.type)}
    return frozenset(({array} & lists) | (set(names) & (set(schema.names) - lists)))


def stored_files(path: Path, settings: EmbeddingsSettings) -> StoredFiles:
    """Return the files with embeddings of a path: a file, or a folder of them; none of either where there are none.

    Raises
    ------
    EncodingError
        If one that is named as a part of embeddings is a pipe, a folder or the like.
    """
    if path.is_file():
        listed = [path]
    else:
        listed = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else []
    images = sorted(path.glob(f"{_IMAGES}/{_IMAGES}_*.npy"), key=_part_number)
    texts = sorted(path.glob(f"{_TEXTS}/{_TEXTS}_*.npy"), key=_part_number)
    if odd := [each for each in (*images, *texts) if not each.is_file()]:
        raise EncodingError("this is no file", where=odd[0], found="a folder, a pipe or a device", expected="an npy")
    for each in listed:
        if each.suffix in _SUFFIXES:
            there = _columns(each, each.stat().st_mtime_ns, settings.vector, settings.image, settings.text)
            if settings.vector in there:
                (images if settings.image in there or settings.text not in there else texts).append(each)
    return StoredFiles(tuple(images), tuple(texts))


def _folders(path: Path) -> list[Path]:
    """Return a folder and its subfolders, which may be those of datasets."""
    below = sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []
    return [path, *(each for each in below if each.name not in (_IMAGES, _TEXTS, _METADATA))]


def embedding_contents(path: Path, settings: EmbeddingsSettings) -> FolderContents | None:
    """Return the files of embeddings of a file, or of a folder; None where it has no embeddings of images."""
    below = [stored_files(folder, settings) for folder in _folders(path)]
    if not any(files.images for files in below):
        return None
    every = tuple(file for files in below for file in files.contents)
    images = tuple(file for files in below for file in files.images)
    top = path if path.is_dir() else path.parent
    return FolderContents(images, {file.relative_to(top).as_posix(): file for file in every})


def stored_family(path: Path, settings: EmbeddingsSettings) -> str:
    """Return the family of what lies at the path of an address `stored:PATH`."""
    if embedding_contents(path, settings) is None:
        return "stored"
    tower = settings.texts is not None and not settings.texts.startswith(STORED)
    return "stored_images" if tower else "stored_vectors"


@dataclass(frozen=True)
class StoredEmbeddingFiles(CheckpointFiles):
    """Files of embeddings, how they are read, and what embeds texts.

    Attributes
    ----------
    path : Path
        The file of the address, or the folder; `folder` is the file's own then.
    settings : EmbeddingsSettings
    project : Path
        Where relative paths start.
    tower : CheckpointFiles or None
        Of the checkpoint that embeds texts; None where those of texts are stored too.
    """

    path: Path
    settings: EmbeddingsSettings
    project: Path
    tower: CheckpointFiles | None

    @classmethod
    def find(
        cls,
        encoder: str,
        address: Address,
        settings: EmbeddingsSettings,
        *,
        project: Path,
        tower: Callable[[str], CheckpointFiles],
    ) -> Self | None:
        """Return the files of an address `stored:PATH`; None where it has no embeddings of images.

        Parameters
        ----------
        encoder : str
            Id in the audit file.
        tower : callable
            From the address of a checkpoint to its files.
        """
        path, of_texts = address.folder_in(Path()), None
        contents, family = embedding_contents(path, settings), stored_family(path, settings)
        if contents is None:
            return None
        if family == "stored_images":
            of_texts = tower(str(settings.texts))
        elif settings.texts is not None:
            texts = parse_address(settings.texts, project=project).folder_in(Path())
            contents.deciding.update({f"texts/{file.name}": file for file in stored_files(texts, settings).contents})
        shas = {name: file_digest(file) for name, file in contents.deciding.items()}
        images = {name: sha for name, sha in shas.items() if contents.deciding[name] in contents.weights}
        read_as = settings.model_dump(exclude={"checkpoint", "texts"})
        return cls(
            encoder,
            path if path.is_dir() else path.parent,
            contents.weights,
            weights_digest(images),
            digest_json([shas, read_as, of_texts.version if of_texts else None]),
            family,
            tuple(sorted(shas.items())),
            path,
            settings,
            project,
            of_texts,
        )

    @property
    def texts(self) -> Path:
        """Return the path of the stored embeddings of texts."""
        text = self.settings.texts
        return self.path if text is None else parse_address(text, project=self.project).folder_in(Path())


# --- Files of vectors, each with the names of its rows.


@dataclass(frozen=True)
class _Part:
    """One file of vectors: `names` are the paths, keys or texts of its rows, as `column` of `named_in` has them."""

    path: Path
    vectors: NDArray[Any]
    names: list[str]
    named_in: Path
    column: str

    def place(self, row: int) -> str:
        """Return where a row stands, for messages."""
        return f"{self.path}, row {row + 1}, column `{self.column}`"


def _part_number(path: Path) -> tuple[int, str]:
    number = _PART.search(path.name)
    return (int(number[1]) if number else -1, path.name)


def _metadata_of(path: Path) -> Path:
    number = _PART.search(path.name)
    return path.parent.parent / _METADATA / f"{_METADATA}_{number[1] if number else ''}.parquet"


_NPZ_FREE_BYTES, _NPZ_RATIO = 256 << 20, 20
_DAMAGED = (
    *(OSError, ValueError, EOFError, MemoryError, OverflowError, RuntimeError, TypeError, LookupError, SyntaxError),
    *(SystemError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What zipfile, zlib and NumPy raise of files that nobody wrote in good faith."""


def _told(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}".removesuffix(": "))


def _opened_npz(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as packed:
            members = packed.infolist()
        if any(member.compress_type not in BOUNDED_METHODS for member in members):
            raise ValueError("it is packed by another method than deflate")
        size = sum(member.file_size for member in members)
        if size > max(_NPZ_FREE_BYTES, _NPZ_RATIO * path.stat().st_size):
            raise EncodingError(
                "this npz grows too much when it is read",
                where=path,
                found=f"{size:,} bytes from {path.stat().st_size:,}",
                expected=f"at most {_NPZ_RATIO} times its size",
            )
        return np.load(path, allow_pickle=False)
    except _DAMAGED as error:
        raise EncodingError(
            "this is no npz of arrays", where=path, found=_told(error), expected="arrays, no objects"
        ) from error


class _Header(NamedTuple):
    """What an array says of itself, before any of it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Return how many numbers or texts it has."""
        return math.prod(self.shape)


def _header(file: IO[bytes], *, size: int) -> _Header:
    """Return the header of an npy of so many bytes; raises one of `_DAMAGED` where it is none, or has no room."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it is of version {version}")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    header = _Header(shape, dtype)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    if header.size * dtype.itemsize > size - file.tell():
        raise ValueError(f"it says that it is {dtype} of shape {shape}, which takes more bytes than there are")
    return header


def _read_npz(path: Path, column: str, vector: str) -> tuple[NDArray[Any], list[str]]:
    """Return the vectors of an npz and the names of their rows; nothing is made before both headers are read."""
    with _opened_npz(path) as arrays:
        _require_columns(path, column, vector, tuple(arrays))
        try:
            there = {*arrays.zip.namelist()}
            members = [arrays.zip.getinfo(f"{n}.npy" if f"{n}.npy" in there else n) for n in (vector, column)]
            headers = []
            for member in members:
                with arrays.zip.open(member) as file:
                    headers.append(_header(file, size=member.file_size))
            _require_matrix(path, headers[0].shape, headers[0].dtype)
            # Texts of no width take no bytes, however many there are.
            if headers[1].size > 1 + headers[0].size:
                raise EncodingError(
                    "there are more names than numbers",
                    where=f"{path}, array `{column}`",
                    found=f"{headers[1].size:,} names, {headers[0].size:,} numbers",
                    expected="a name for each row of embeddings",
                )
            read = []
            for member in members:
                with arrays.zip.open(member) as file:
                    read.append(npy.read_array(file, allow_pickle=False))
            vectors, stored = read
            return vectors, [
                name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
                for name in stored.reshape(-1).tolist()
            ]
        except _DAMAGED as error:
            raise EncodingError("this npz cannot be read", where=path, found=_told(error)) from error


def _read(path: Path, column: str, settings: EmbeddingsSettings) -> _Part:
    """Read one file.

    Raises
    ------
    EncodingError
        If it is no matrix of numbers, or has not a name for every row.
    """
    if path.suffix == ".npy":
        try:
            with path.open("rb") as file:
                _header(file, size=path.stat().st_size)
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        except _DAMAGED as error:
            raise EncodingError(
                "this is no npy of numbers", where=path, found=_told(error), expected="a matrix"
            ) from error
        named_in = _metadata_of(path)
        names = _names(named_in, column)
    elif path.suffix == ".npz":
        named_in, (vectors, names) = path, _read_npz(path, column, settings.vector)
    else:
        named_in, names, vectors = path, _names(path, column), _lists(path, settings.vector)
    _require_matrix(path, vectors.shape, vectors.dtype)
    if len(names) != len(vectors):
        raise EncodingError(
            f"{abs(len(names) - len(vectors))} rows of embeddings or names are missing",
            where=path,
            found=f"{len(vectors)} rows of embeddings, {len(names)} in column `{column}` of {named_in.name}",
            expected="as many, in one order",
        )
    return _Part(path, vectors, names, named_in, column)


def _require_matrix(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 2 or dtype.kind != "f":
        raise EncodingError(
            "the stored embeddings are of another shape or type",
            where=path,
            found=f"{dtype} of shape {shape}",
            expected="floats, a row an image or text",
        )


def _require_columns(path: Path, column: str, vector: str, there: Sequence[str]) -> None:
    if lacking := [name for name in (column, vector) if name not in there]:
        raise EncodingError(
            f"the stored embeddings lack {' and '.join(f'`{name}`' for name in lacking)}",
            where=path,
            found=printable(", ".join(there)),
            expected=f"`{column}` and `{vector}`",
            hint="name them under `embeddings.image`, `.text` and `.vector` of the encoder",
        )


def _names(path: Path, column: str) -> list[str]:
    if not path.is_file():
        raise EncodingError(
            "the rows of these embeddings have no names", where=path, found="no file", expected=f"column `{column}`"
        )
    try:
        schema = table_schema(path, name=path.name)
        if column not in schema.names:
            _require_columns(path, column, column, schema.names)
        rows = list(read_table_rows(path, name=path.name, columns=[column]))
    except DatasetError as error:
        raise error.restated(EncodingError, where=path) from error
    if refused := [row for row in rows if isinstance(row, Refusal)]:
        raise EncodingError(
            f"{len(refused)} names of rows cannot be read: {refused[0].message}",
            where=f"{path}, row {refused[0].line}, column `{column}`",
            found=examples(f"row {row.line}: {row.found}" for row in refused),
            expected=refused[0].expected,
        )
    names = [row.values[column] for row in rows if not isinstance(row, Refusal)]
    if empty := [i for i, name in enumerate(names) if not name]:
        raise EncodingError(
            f"{len(empty)} of {len(names)} rows of embeddings have no name",
            where=f"{path}, row {empty[0] + 1}, column `{column}`",
            found=f"an empty value in row {examples(row + 1 for row in empty)}",
            expected="a path, key or text",
        )
    return names


def _lists(path: Path, column: str) -> NDArray[Any]:
    """Return the (n, d) numbers of a column of lists.

    Raises
    ------
    EncodingError
        If one is null, holds a null, or is of another length than the first.
    """
    import pyarrow.compute as pc
    from pyarrow import types

    schema = table_schema(path, name=path.name)
    _require_columns(path, column, column, schema.names)
    kind = schema.field(column).type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        raise EncodingError(
            "the column of embeddings holds no lists",
            where=path,
            found=described(schema),
            expected=f"`{column}`: lists",
        )
    _require_modest(path, column)
    values = whole_columns(path, name=path.name, columns=[column]).column(column).combine_chunks()
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    first = lengths[0] if len(lengths) else 0
    if len(wrong := np.flatnonzero(lengths != first)):  # a null has the length NaN
        raise EncodingError(
            f"{len(wrong)} of {len(values)} embeddings are of another length",
            where=f"{path}, row {wrong[0] + 1}, column `{column}`",
            found=examples(
                f"row {row + 1}: {'null' if np.isnan(lengths[row]) else f'{int(lengths[row])} numbers'}"
                for row in wrong
            ),
            expected=f"{int(first)} numbers, as in row 1",
        )
    flat = values.flatten()
    if flat.null_count:
        at = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0])
        raise EncodingError(
            f"{flat.null_count} numbers of embeddings are null",
            where=f"{path}, row {at // int(first) + 1}, column `{column}`",
            found="null",
            expected="numbers",
        )
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(values), int(first))


def _require_modest(path: Path, column: str) -> None:
    """Refuse a column of lists that are longer than any embedding, before one is read."""
    with suppress(ImageRejected), OpenColumns(path) as plain:  # what is damaged is said by who reads it
        leaves = map(plain.metadata.schema.column, range(plain.metadata.num_columns))
        of_column = [i for i, leaf in enumerate(leaves) if leaf.path.startswith(f"{column}.")]
        groups = map(plain.metadata.row_group, range(plain.metadata.num_row_groups))
        numbers = sum(group.column(i).num_values for group in groups for i in of_column)
        rows = plain.metadata.num_rows
        if numbers > _WIDEST * rows:
            raise EncodingError(
                "these are longer than any embedding",
                where=f"{path}, column `{column}`",
                found=f"{numbers:,} numbers in {rows:,} rows",
                expected=f"at most {_WIDEST:,} a row",
            )


def _parts(paths: Iterable[Path], column: str, settings: EmbeddingsSettings) -> list[_Part]:
    """Read files; raises EncodingError with everything that is wrong with them, or of another width than the first."""
    parts: list[_Part] = []
    wrong: list[EncodingError] = []
    for path in paths:
        try:
            part = _read(path, column, settings)
        except EncodingError as error:
            wrong.append(error)
            continue
        if parts and part.vectors.shape[1] != parts[0].vectors.shape[1]:
            first = parts[0]
            wrong.append(
                EncodingError(
                    "embeddings of two files are of different lengths",
                    where=path,
                    found=f"{part.vectors.shape[1]} numbers",
                    expected=f"{first.vectors.shape[1]}, as in {first.path.name}",
                )
            )
            continue
        parts.append(part)
    if wrong:
        raise EncodingError.all_of(wrong)
    return parts


def _gathered(parts: Sequence[_Part], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return some rows of all parts as float32, counted through the parts."""
    starts = np.cumsum([0, *(len(part.names) for part in parts)])
    gathered = np.empty((len(rows), parts[0].vectors.shape[1] if parts else 0), dtype=np.float32)
    for part, start, stop in zip(parts, starts, starts[1:]):
        here = (rows >= start) & (rows < stop)
        gathered[here] = part.vectors[rows[here] - start]
    return gathered


def _place(parts: Sequence[_Part], row: int) -> str:
    for part in parts:
        if row < len(part.names):
            return part.place(row)
        row -= len(part.names)
    raise IndexError(row)


def _unusable(parts: Sequence[_Part], rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> Iterator[EncodingError]:
    """Give an error of each kind of vectors that no cosine can be taken of."""
    finite = np.isfinite(vectors).all(axis=1)
    zero = finite & ~vectors.any(axis=1)
    for marked, fault, expected in ((~finite, "NaN or infinity", "finite numbers"), (zero, "zeros alone", "a vector")):
        if marked.any():
            yield EncodingError(
                f"{int(marked.sum())} of {len(vectors)} stored embeddings hold {fault}",
                where=_place(parts, int(rows[np.flatnonzero(marked)[0]])),
                found=f"{fault} in {examples(_place(parts, int(row)) for row in rows[marked])}",
                expected=expected,
                hint="compute them again, or take the images out of the dataset's table",
            )


def _said(parts: Sequence[_Part], vectors: NDArray[np.float32]) -> Reasons:
    """Return what is to be known of vectors that can be used."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    far = np.abs(norms - 1) > _UNIT
    half = sum(len(part.names) for part in parts if part.vectors.dtype == np.float16)
    return joined(
        reason("stored_in_half_precision", rows=half) if half else None,
        reason("stored_not_normalised", rows=int(far.sum()), of=len(norms), low=norms.min(), high=norms.max())
        if far.any()
        else None,
    )


# --- The encoder: images and texts are looked up, or texts go through the tower of a checkpoint.


class StoredImages(NamedTuple):
    """Embeddings of the images of a dataset.

    Attributes
    ----------
    vectors : (n, d) float32
        As they are stored, in the order of the images that were asked for.
    surplus : int
        Stored rows of images that were not asked for.
    notes : tuple of Reason
        What is to be known of them.
    """

    vectors: NDArray[np.float32]
    surplus: int
    notes: Reasons


def stored_images(
    top: Path, settings: EmbeddingsSettings, dataset: str, images: pl.DataFrame, *, width: int = 0
) -> StoredImages:
    """Return the embeddings of images of a dataset.

    Parameters
    ----------
    top : Path
        The file or folder of the address `stored:PATH`.
    images : DataFrame
        `path` and `image_id` of n accepted images.
    width : int
        Length of an embedding of texts; 0 where it is not known.

    Raises
    ------
    EncodingError
        With everything that is wrong: a file that cannot be read, of another width, or with rows that have no name;
        an image in two rows or in none; NaN, infinity, zeros; with file, row, column, and how many there are.
    """
    below = top / dataset
    folder = below if below.is_dir() else top
    column = settings.image
    paths = stored_files(folder, settings).images
    if not paths:
        raise EncodingError(
            f"there are no stored embeddings of the dataset `{dataset}`",
            where=folder,
            found="no embeddings of images",
            expected=f"{_IMAGES}/{_IMAGES}_0.npy with {_METADATA}/{_METADATA}_0.parquet, an npz or a Parquet table",
        )
    parts = _parts(paths, column, settings)
    rows, again = find_rows(images, [name for part in parts for name in part.names])
    wrong: list[EncodingError] = []
    if again:
        second = again[0][2]
        wrong.append(
            EncodingError(
                f"{len(again)} rows of embeddings are of an image that another row is of",
                where=_place(parts, second),
                found=examples(
                    f"{printable(image)} in {_place(parts, second)}, as in {_place(parts, first)}"
                    for image, first, second in again
                ),
                expected="one row an image",
            )
        )
    absent = [path for path, row in zip(images["path"], rows) if row < 0]
    if absent:
        wrong.append(
            EncodingError(
                f"{len(absent)} of {images.height} images of `{dataset}` have no stored embedding",
                where=f"{', '.join(sorted({part.named_in.name for part in parts}))}, column `{column}`",
                found=f"{sum(len(part.names) for part in parts)} rows, such as {parts[0].names[:1]}; no row of "
                f"{examples(absent)}",
                expected="a row for every accepted image, by its path, its key or its sha256",
                hint="embed them, or take the images out of the dataset's table",
            )
        )
    there = rows[rows >= 0]
    vectors = _gathered(parts, there)
    wrong += _unusable(parts, there, vectors)
    if len(vectors) and width and vectors.shape[1] != width:
        wrong.append(
            EncodingError(
                "embeddings of images and texts are of different lengths",
                where=parts[0].path,
                found=f"{vectors.shape[1]} numbers",
                expected=f"{width}, as those of texts",
                hint="texts and images must be of one checkpoint",
            )
        )
    if wrong:
        raise EncodingError.all_of(wrong)
    surplus = sum(len(part.names) for part in parts) - len(np.unique(there))
    return StoredImages(vectors, surplus, _said(parts, vectors) if len(vectors) else ())


class StoredEmbeddings:
    """Embeddings that were computed elsewhere as an encoder: `plumbline.encoders.encoder.DualEncoder` without images.

    Parameters
    ----------
    files : StoredEmbeddingFiles
    placement : Placement
    tower : DualEncoder, optional
        Embeds texts; without it those whose embeddings are stored, and no others.
    """

    crop: Crop | None = None

    def __init__(self, files: StoredEmbeddingFiles, _placement: Placement, tower: DualEncoder | None = None) -> None:
        self.family, self.weights_sha256, self.path = files.family, files.weights_sha256, files.path
        self._settings, self._tower = files.settings, tower
        self.parameters, self.device = (0, "none") if tower is None else (tower.parameters, tower.device)
        self.logit_scale = self._settings.logit_scale if tower is None else tower.logit_scale
        self.logit_bias = 0.0 if tower is None else tower.logit_bias
        by = "none" if tower is None else tower.identity.digest
        dtype = "none" if tower is None else tower.identity.dtype
        self.identity = EncoderIdentity(files.digest, digest_json(["stored", by]), "stored embeddings", "none", dtype)
        self._texts = None if tower else StoredTexts(files.texts, self._settings)

    @property
    def width(self) -> int:
        """Return the length of an embedding."""
        return self._tower.width if self._tower is not None else self._texts.width if self._texts else 0

    def known(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return those of some texts that can be embedded, in their order."""
        return tuple(texts) if self._texts is None else tuple(text for text in texts if text in self._texts)

    def too_long(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the texts that are longer than what embeds them takes -> their tokens."""
        return tokens_beyond(self._tower, texts)

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, d) embeddings of texts, float32.

        Raises
        ------
        EncodingError
            If one of them is not stored, and no checkpoint embeds it.
        """
        if self._tower is not None:
            return self._tower.embed_texts(texts)
        return self._texts.read(texts) if self._texts else np.zeros((0, 0), np.float32)

    def images(self, dataset: str, images: pl.DataFrame) -> StoredImages:
        """Return the embeddings of images; see `stored_images`, of the width of those of texts."""
        return stored_images(self.path, self._settings, dataset, images, width=self.width)


class StoredTexts:
    """Stored embeddings of texts, by text.

    Parameters
    ----------
    path : Path
        A file, or a folder of them.

    Raises
    ------
    EncodingError
        If a file cannot be read, a text has two different embeddings, or one holds NaN, infinity or zeros alone.
    """

    def __init__(self, path: Path, settings: EmbeddingsSettings) -> None:
        self._parts = _parts(stored_files(path, settings).texts, settings.text, settings)
        self._where = path
        names = [name for part in self._parts for name in part.names]
        self._row: dict[str, int] = {}
        again = [(i, first) for i, name in enumerate(names) if (first := self._row.setdefault(name, i)) != i]
        rows = np.arange(len(names))
        vectors = _gathered(self._parts, rows)
        wrong = [*_unusable(self._parts, rows, vectors)]
        other = [
            (i, first)
            for i, first in again
            if np.linalg.norm(vectors[i] - vectors[first]) > _SAME_TEXT * np.linalg.norm(vectors[first])
        ]
        if other:
            i, first = other[0]
            wrong.append(
                EncodingError(
                    f"{len(other)} rows have another embedding of a text that an earlier row has",
                    where=_place(self._parts, i),
                    found=f"{printable(names[i])}, as in {_place(self._parts, first)}",
                    expected="one embedding a text",
                )
            )
        if wrong:
            raise EncodingError.all_of(wrong)
        self._vectors = vectors

    @property
    def width(self) -> int:
        """Return the length of an embedding; 0 where there is none."""
        return int(self._vectors.shape[1])

    def __contains__(self, text: object) -> bool:
        return text in self._row

    def read(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the (t, d) embeddings of texts; raises EncodingError with those that are not stored."""
        if lacking := [text for text in texts if text not in self._row]:
            raise EncodingError(
                f"{len(lacking)} of {len(texts)} texts have no stored embedding",
                where=self._where,
                found=f"{len(self._row)} texts; none is `{printable(lacking[0])}`",
                expected="every text, letter by letter",
                hint="embed them too, or name a checkpoint under `embeddings.texts`, whose text tower does it",
            )
        return self._vectors[[self._row[text] for text in texts]]


@lru_cache(maxsize=8)
def _texts_of(files: StoredEmbeddingFiles) -> StoredTexts:
    return StoredTexts(files.texts, files.settings)


def not_stored(suites: Sequence[str], lacking: Sequence[str], *, of: int) -> Reason:
    """Return why suites are not computed some of whose prompts have no stored embedding."""
    return reason("texts_not_stored", suites=list(suites), lacking=len(lacking), of=of, first=lacking[0])


def lacking_texts(files: StoredEmbeddingFiles, suite: Suite) -> tuple[str, ...]:
    """Return the prompts of a suite that stored embeddings cannot give; none where a checkpoint embeds texts."""
    if files.tower is not None:
        return ()
    texts = _texts_of(files)
    return tuple(text for text in suite.embedded if text not in texts)
