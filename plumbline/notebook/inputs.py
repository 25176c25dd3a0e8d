"""What a caller hands over: a model as two functions, images, and what is known of them in any table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.datasets.grouping import AGE_BANDS, UNGROUPED, into_bins
from plumbline.datasets.records import EXTENDED_SCHEMA, LABEL_COLUMNS, printable, unsafe_characters
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError, DatasetError, EncodingError, ImageRejected, examples, suggestion
from plumbline.metrics.inputs import is_missing

if TYPE_CHECKING:
    from PIL.Image import Image

Logit = Literal["dot", "scaled_cosine"]
"""How the logit of an image and a text is taken: the product of their vectors, or their cosine times a scale."""


@dataclass(frozen=True)
class Embedder:
    """Two functions that embed into one space, and how logits follow.

    Attributes
    ----------
    images : callable
        Sequence of b RGB images to (b, d).
    texts : callable
        Sequence of t texts to (t, d).
    logit_scale : float or None
        The model's own factor from cosine to logit; None where it is not known.
    """

    images: Callable[[Sequence[Image]], Any]
    texts: Callable[[Sequence[str]], Any]
    logit: Logit = "dot"
    logit_scale: float | None = None


def embedder_of(model: Any, preprocess: Any = None, tokenizer: Any = None) -> Embedder:
    """Return what embeds images and texts.

    Parameters
    ----------
    model : module, or a pair of callables
        A model of open_clip (`encode_image`, `encode_text`) or of transformers (`get_image_features`,
        `get_text_features`); or `(embed_images, embed_texts)`: sequence of PIL images to (b, d), of texts to (t, d).
    preprocess : callable, optional
        open_clip: one image to a tensor. transformers: the processor, or the image processor.
    tokenizer : callable, optional
        open_clip: texts to token ids. transformers: the tokenizer, where `preprocess` does not hold it.

    Raises
    ------
    EncodingError
        If the model is none of these, or a part is missing.
    """
    if isinstance(model, tuple | list) and len(model) == 2 and all(map(callable, model)):
        return Embedder(*model)
    if hasattr(model, "encode_image") and hasattr(model, "encode_text"):
        return _of_open_clip(model, _needed(preprocess, "preprocess"), _needed(tokenizer, "tokenizer"))
    if hasattr(model, "get_image_features") and hasattr(model, "get_text_features"):
        tokenizer = tokenizer or getattr(preprocess, "tokenizer", None)
        return _of_transformers(model, _needed(preprocess, "preprocess"), _needed(tokenizer, "tokenizer"))
    raise EncodingError(
        "this is no model that embeds images and texts",
        where="model",
        found=type(model).__name__,
        expected="a model of open_clip or a dual encoder of transformers, or a pair (embed_images, embed_texts)",
    )


def _needed(part: Any, name: str) -> Any:
    if part is None:
        raise EncodingError(
            f"the model needs its {name}",
            where=name,
            found="None",
            expected="what open_clip.create_model_and_transforms and get_tokenizer give, or transformers' processor",
        )
    return part


def _of_open_clip(model: Any, preprocess: Any, tokenizer: Any) -> Embedder:
    import torch

    device = next(model.parameters()).device

    def images(batch: Sequence[Image]) -> Any:
        return model.encode_image(torch.stack([preprocess(image) for image in batch]).to(device))

    def texts(batch: Sequence[str]) -> Any:
        return model.encode_text(tokenizer(list(batch)).to(device))

    scale = getattr(model, "logit_scale", None)
    return _evaluated(model, Embedder(images, texts, "dot", None if scale is None else scale.exp().item()))


def _of_transformers(model: Any, processor: Any, tokenizer: Any) -> Embedder:
    from plumbline.encoders.dual_encoder import scale_and_bias, vectors
    from plumbline.encoders.families import FAMILIES
    from plumbline.encoders.transformers_encoder import MOST_PADDED
    from plumbline.imports import import_class

    kind = str(model.config.model_type)
    family = next((each for each in FAMILIES.values() if kind in each.reads), FAMILIES["dual_encoder"])
    most = import_class(family.adapter, below="plumbline.encoders").padded_to or _longest_text(model)

    def images(batch: Sequence[Image]) -> Any:
        return vectors(model.get_image_features(**processor(images=list(batch), return_tensors="pt").to(model.device)))

    def texts(batch: Sequence[str]) -> Any:
        lengths = [len(ids) for ids in tokenizer(list(batch))["input_ids"]]
        if max(lengths) > most:
            raise EncodingError(
                "a text is longer than this model takes",
                where=batch[int(np.argmax(lengths))],
                found=f"{max(lengths)} tokens",
                expected=f"at most {most}",
            )
        width = max(min(most, MOST_PADDED), *lengths)
        tokens = tokenizer(list(batch), padding="max_length", max_length=width, return_tensors="pt")
        return vectors(model.get_text_features(**tokens.to(model.device)))

    logit: Logit = "dot" if family.logit == "dot" else "scaled_cosine"
    return _evaluated(model, Embedder(images, texts, logit, scale_and_bias(model, kind)[0]))


def _longest_text(model: Any) -> int:
    return int(model.config.text_config.max_position_embeddings)


def _evaluated(model: Any, embedder: Embedder) -> Embedder:
    """Run both functions without gradients and without dropout; the model is then in the mode that it was in."""

    def within(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(batch: Any) -> Any:
            with _evaluation(model):
                return function(batch)

        return call

    return Embedder(within(embedder.images), within(embedder.texts), embedder.logit, embedder.logit_scale)


@contextmanager
def _evaluation(model: Any) -> Iterator[None]:
    import torch

    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


# --- Images, and vectors of them.


def as_vectors(values: Any, *, where: str, rows: int | None = None) -> NDArray[np.float32]:
    """Return vectors as (n, d) float32: of a tensor on any device, an array, a frame, or lists.

    Raises
    ------
    EncodingError
        If they are no table of numbers, are not finite or zero, or are another number than the rows.
    """
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    try:
        vectors = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EncodingError("vectors must be numbers", where=where, found=error, expected="(n, d) numbers") from error
    if vectors.ndim != 2 or (rows is not None and len(vectors) != rows):
        raise EncodingError(
            "vectors must be a table, a row each",
            where=where,
            found=f"shape {vectors.shape}",
            expected=f"({'n' if rows is None else rows}, d)",
        )
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if (bad := np.flatnonzero(~np.isfinite(norms) | (norms == 0))).size:
        raise EncodingError(
            f"{bad.size} vector(s) are NaN, infinite or of zero norm",
            where=f"{where}, row {', '.join(map(str, bad[:3]))}",
            found=f"norms {norms[bad][:3].tolist()}",
            expected="finite, positive norms",
        )
    return vectors


class Pictures(NamedTuple):
    """Vectors of images, (n, d) float32, and the id of each: the sha256 of its file, or of its pixels without one."""

    vectors: NDArray[np.float32]
    ids: tuple[str, ...]


def embed_pictures(embedder: Embedder, images: Sequence[Any], *, batch: int) -> Pictures:
    """Embed images, so many at once: paths, which are decoded upright as an audit does, or PIL images.

    Raises
    ------
    EncodingError
        If an item is neither a path nor a picture, or a vector cannot be used.
    ImageRejected
        If a file cannot be read.
    """
    if isinstance(images, str | Path):
        raise EncodingError(
            "images are a sequence of paths or pictures",
            where="images",
            found=repr(str(images)),
            expected="such as sorted(Path('faces').glob('*.jpg'))",
        )
    images = list(images)
    _require_there(images)
    parts, ids = [np.zeros((0, 0), np.float32)], []
    for start in range(0, len(images), batch):
        opened = [_opened(image, place) for place, image in enumerate(images[start : start + batch], start)]
        ids += [name for _, name in opened]
        vectors = embedder.images([picture for picture, _ in opened])
        parts.append(as_vectors(vectors, where=f"images[{start}:{start + len(opened)}]", rows=len(opened)))
    return Pictures(np.concatenate(parts[1:] or parts), tuple(ids))


def _require_there(images: Sequence[Any]) -> None:
    """Refuse images of which several are not there before any is embedded; a single one is told when it is opened."""
    paths = [(place, Path(image)) for place, image in enumerate(images) if isinstance(image, str | Path)]
    # A picture in a Parquet file or a tar lies below a file.
    absent = [
        f"images[{place}], {path}"
        for place, path in paths
        if not path.exists() and not any(parent.is_file() for parent in path.parents)
    ]
    if len(absent) > 1:
        raise ImageRejected(
            "missing_file",
            f"{len(absent):,} of {len(images):,} images are not there",
            where=f"images, from {Path.cwd()}",
            found=examples(absent),
            expected="a file each",
        )


def _opened(image: Any, place: int) -> tuple[Image, str]:
    from plumbline.images.decoding import decode, read_image_file

    if isinstance(image, str | Path):
        try:
            data = read_image_file(Path(image))
            return decode(data, suffix=Path(image).suffix), digest_bytes(data)
        except ImageRejected as error:
            where = f"images[{place}], {image}"
            raise ImageRejected(
                error.code, error.what, where=where, found=error.found, expected=error.expected, hint=error.hint
            ) from error
    if hasattr(image, "convert"):
        upright = image.convert("RGB")
        return upright, digest_bytes(repr(upright.size).encode() + upright.tobytes())
    raise EncodingError(
        "an image is neither a path nor a picture",
        where=f"images[{place}]",
        found=type(image).__name__,
        expected="a path, or a PIL image",
    )


# --- What a caller knows of the images, in whatever table it is in, as the records that metrics read.

_AGES = "age_group"
_AUTOMATIC = ("auto_gender", "auto_gender_probability", "auto_gender_margin", "composite")
_LONGEST = 8
_SHOWABLE = "a text without control characters, ends of lines and changes of direction"


class Known(NamedTuple):
    """What a caller knows of n images.

    Attributes
    ----------
    records : DataFrame
        `EXTENDED_SCHEMA` and the caller's own attributes, a row an image; what is not known is null.
    unused : dict of str to str
        Columns that are not read, and images that their value puts in no group -> why.
    """

    records: pl.DataFrame
    unused: dict[str, str]


def records_of(
    labels: Any,
    image_ids: Sequence[str],
    *,
    dataset: str,
    attributes: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
) -> Known:
    """Return the records of n images.

    Parameters
    ----------
    labels : table or None
        A polars or pandas frame, a mapping of column to values, or a sequence of mappings; n rows in the order of the
        images. Columns are those of records, `gender`, `race`, `age_group` and so on, and `attributes`; others are not
        read, and named in `unused`.
    image_ids : sequence of str
        Stand where `labels` has no column `image_id`.
    attributes : sequence of str
        Columns of groups of the caller's own, such as `department`.
    bins : mapping of str to sequence of float, optional
        Column of numbers -> ascending limits of the groups that they are put into. Years in `age` become `age_group`,
        without limits FairFace's.

    Raises
    ------
    ConfigError
        If limits do not ascend.
    DatasetError
        If it is no table, has other rows than there are images, no column that says anything of a person, or a name or
        a label with a character that tables and charts cannot show.
    """
    n = len(image_ids)
    table = pl.DataFrame({"image_id": list(image_ids)}) if labels is None else as_table(labels)
    if table.height != n:
        raise DatasetError(
            "labels and images must be as many, in one order",
            where="labels",
            found=f"{table.height} rows of labels, {n} images",
            expected=f"{n} rows",
        )
    limits = _limits(bins)
    if lacking := [name for name in (*attributes, *limits) if name not in table.columns]:
        raise DatasetError(
            "the labels have no such column",
            where="attributes" if lacking[0] in attributes else "bins",
            found=examples(lacking) + suggestion(lacking[0], table.columns),
            expected=", ".join(table.columns),
        )
    added = [name for name in dict.fromkeys((*attributes, *limits)) if name not in EXTENDED_SCHEMA]
    known = [name for name in (*LABEL_COLUMNS, *_AUTOMATIC, *added) if name in table.columns]
    if labels is not None and not known:
        raise DatasetError(
            "no column of the labels is one that people are compared by",
            where="labels",
            found=(", ".join(table.columns[:_LONGEST]) or "no column") + _meant(table.columns),
            expected=f"one of {', '.join(LABEL_COLUMNS)}",
            hint="rename your columns, such as labels.rename({'sex': 'gender'}), or name them with `attributes`",
        )
    schema = EXTENDED_SCHEMA | dict.fromkeys(added, pl.String)
    given = {name: _texts(table[name], kind) for name, kind in schema.items() if name in table.columns}
    _require_showable(given, added)
    ids = pl.Series("image_id", list(image_ids), dtype=pl.String)
    columns = {"image_id": ids, "path": ids.alias("path"), "dataset": pl.repeat(dataset, n, eager=True)} | given
    records = pl.DataFrame(
        [columns.get(name, pl.repeat(None, n, dtype=kind, eager=True)).alias(name) for name, kind in schema.items()]
    )
    if "age" not in limits and "age" in given and _AGES not in given:
        limits["age"] = tuple(map(float, AGE_BANDS))
    binned, unused = _binned(records, limits)
    others = [] if labels is None else [name for name in table.columns if name not in schema]
    return Known(binned, unused | {f"column `{name}`": _not_read(name) for name in others})


def require_name(name: str, *, where: str) -> None:
    """Refuse a name of a model or dataset that tables and charts cannot show: ConfigError."""
    if unsafe_characters(name):
        raise ConfigError(
            "a name holds characters that cannot be shown", where=where, found=printable(name), expected=_SHOWABLE
        )


def _require_showable(given: Mapping[str, pl.Series], added: Sequence[str]) -> None:
    """Refuse columns of groups whose name, or a label of which, cannot be shown: DatasetError."""
    for name in (*added, *LABEL_COLUMNS, *_AUTOMATIC):
        if name not in given:
            continue
        labels = given[name].unique().drop_nulls().to_list() if given[name].dtype == pl.String else []
        if odd := [text for text in (name, *sorted(labels)) if unsafe_characters(text)]:
            raise DatasetError(
                f"{len(odd)} names or labels hold characters that cannot be shown",
                where=f"labels, column `{printable(name)}`",
                found=examples(map(printable, odd)),
                expected=_SHOWABLE,
                hint="clean them first, such as labels.with_columns(pl.col('gender').str.strip_chars())",
            )


def _limits(bins: Any) -> dict[str, tuple[float, ...]]:
    """Return column -> limits of its groups; raises ConfigError where they are none."""
    try:
        limits = {str(name): tuple(map(float, edges)) for name, edges in (bins or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            "limits of groups are numbers",
            where="bins",
            found=repr(bins)[:80],
            expected="such as {'age': (18, 40, 65)}",
        ) from error
    for name, edges in limits.items():
        if len(edges) < 2 or any(not low < high for low, high in pairwise(edges)):
            raise ConfigError(
                "limits of groups must ascend",
                where=f"bins[{name!r}]",
                found=list(edges),
                expected="two or more numbers, each larger than the one before",
            )
    return limits


def _meant(columns: Sequence[str]) -> str:
    return next((close for name in columns if (close := suggestion(name, LABEL_COLUMNS))), "")


def _not_read(name: str) -> str:
    """Say how a column would be read."""
    meant = name.strip().lower()
    renamed = f"rename it `{meant}`, which more is computed of; or " if meant in LABEL_COLUMNS else ""
    close = suggestion(name, LABEL_COLUMNS) if meant not in LABEL_COLUMNS else ""
    return f"{renamed}people are compared by it where `attributes` names it: attributes=[{name!r}]{close}"


def _binned(records: pl.DataFrame, limits: Mapping[str, Sequence[float]]) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the records with groups in the place of numbers, and the images that no group takes -> why."""
    without: dict[str, str] = {}
    for name, edges in limits.items():
        into = _AGES if name == "age" else name
        groups, none = into_bins(records[name], edges)
        records = records.with_columns(groups.alias(into))
        why = "; ".join(f"{rows:,}: {UNGROUPED[code]}" for code, rows in none.items() if rows)
        without |= {f"images in no group of `{into}`": why} if why else {}
    return records, without


def as_table(labels: Any) -> pl.DataFrame:
    """Return a table as a polars frame; raises DatasetError where it is none."""
    if isinstance(labels, pl.DataFrame | pl.LazyFrame):
        return labels.lazy().collect()
    try:
        if type(labels).__module__.partition(".")[0] == "pandas":
            return pl.from_pandas(labels.to_frame() if labels.ndim == 1 else labels)
        if isinstance(labels, Mapping):
            return pl.DataFrame([_column(str(name), values) for name, values in labels.items()])
        rows = list(labels)
        names = dict.fromkeys(name for row in rows for name in row.keys())  # noqa: SIM118 (a row must be a mapping)
        return pl.DataFrame([_column(str(name), [row.get(name) for row in rows]) for name in names])
    except (TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            "labels must be a table",
            where="labels",
            found=f"{type(labels).__name__}: {error}",
            expected="a polars or pandas frame, a mapping of column to values, or a sequence of mappings",
        ) from error


def _column(name: str, values: Any) -> pl.Series:
    """Return a column of a table; raises DatasetError where a value of it would be lost."""
    if isinstance(values, pl.Series):
        return values.alias(name)
    # Of what is missing, which pandas writes as nan, polars would make the text NaN; of tensors it makes nothing.
    listed = [_plain(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]
    column = pl.Series(name, listed, strict=False)
    if column.null_count() > listed.count(None) or column.dtype.is_nested():
        lost = next((value for value, kept in zip(listed, column) if kept is None and value is not None), listed[0])
        raise DatasetError(
            "a column of the labels cannot be read",
            where=f"labels, column `{printable(name)}`",
            found=printable(repr(lost))[:80],
            expected="one text, number or truth value an image",
        )
    return column


def _plain(value: Any) -> Any:
    """Return a value as Python has it, also of a tensor; None where it says that there is none."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    return None if is_missing(value) else value


def _texts(column: pl.Series, kind: type[pl.DataType]) -> pl.Series:
    """Return a column as the records have it: labels are texts, whole numbers among them without a decimal point.

    Raises
    ------
    DatasetError
        If its values are none that a text can be made of.
    """
    if kind == pl.String and column.dtype.is_float():
        filled = column.fill_nan(None)
        whole = filled.drop_nulls().is_finite().all() and (filled.drop_nulls() % 1 == 0).all()
        column = filled.cast(pl.Int64) if whole else filled
    try:
        if column.dtype == pl.Object:
            cast = pl.Series(column.name, column.to_list(), kind)
        else:
            cast = column.cast(kind, strict=False)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            "a column of the labels cannot be read",
            where=f"labels, column `{printable(column.name)}`",
            found=f"values of type {column.dtype}",
            expected="texts, numbers or truth values",
            hint="make texts of it first, such as labels['age'].astype(str)",
        ) from error
    return cast.replace("", None) if kind == pl.String else cast
