"""One audit in memory: of a model and images, or of vectors. The same functions as the pipeline's, asset by asset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.own_suites import is_suite_file, read_own_suite
from plumbline.catalog.schema import QUARANTINE_SCHEMA
from plumbline.catalog.suites import SCENE_SUITES, TRIDENT_SUITES, VARIANT_OF, Suite, load_suite, suite_names, suite_of
from plumbline.datasets.filters import row_filter
from plumbline.datasets.grouping import crossed_name
from plumbline.datasets.grouping import without_small_groups as labels_of_shown_groups
from plumbline.datasets.ingestion import dataset_digest as digest_of
from plumbline.datasets.records import audited_attributes
from plumbline.digests import digest_bytes, digest_json
from plumbline.errors import ConfigError, EncodingError, examples, suggestion
from plumbline.metrics.cell import Cell, build_cell, personal_attributes, text_products, texts_of, without_small_groups
from plumbline.metrics.evidence import equivalence_metrics
from plumbline.metrics.family import MetricSettings, family_rows, with_lineage
from plumbline.metrics.inputs import as_seed
from plumbline.metrics.own import OWN_METRICS, OwnMetric, own_family
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.metrics.text_space import TEXT_SPACE_SUITES, text_space_rows
from plumbline.notebook.inputs import Logit, as_vectors, embed_pictures, embedder_of, records_of, require_name
from plumbline.notebook.results import Audit
from plumbline.version import __version__

MIN_SHOWN = 5
"""Images of the smallest group that is shown by default, as of a user's own table in the pipeline."""

Texts = Mapping[str, Any] | Callable[[Sequence[str]], Any] | Any
"""Vectors of texts: by text, by a function of texts, or (t, d) in the order of `plumbline.prompts`."""


def audit(
    model: Any,
    preprocess: Any = None,
    tokenizer: Any = None,
    *,
    images: Sequence[Any],
    labels: Any = None,
    suites: Sequence[str | Suite] | None = None,
    batch: int = 64,
    name: str = "model",
    **options: Any,
) -> Audit:
    """Audit a model that this program holds; nothing is written, and the model is afterwards in the mode it was in.

    Parameters
    ----------
    model : module, or a pair of callables
        A model of open_clip, a dual encoder of transformers, or `(embed_images, embed_texts)`: a sequence of PIL
        images to (b, d), a sequence of texts to (t, d). It runs where it is, in its own number type.
    preprocess, tokenizer : callable, optional
        open_clip: its transform of one image, and its tokenizer. transformers: the processor.
    images : sequence of n paths or PIL images
    labels : table of n rows, optional
        See `audit_features`.
    suites : sequence of str or Suite, optional
        What is asked, by name or by the path of a file of your own; by default all suites that the labels can answer.
    batch : int
        Images embedded at once.
    name : str
        What the model is called; random draws are named after it.
    **options
        Those of `audit_features`.

    Returns
    -------
    Audit

    Raises
    ------
    EncodingError
        If the model is none of these, or gives a vector that is not finite.
    ImageRejected
        If a file is no image that can be read.
    DatasetError, ConfigError
        As `audit_features`.

    Examples
    --------
    >>> import numpy as np
    >>> from PIL import Image
    >>> import plumbline
    >>> faces = [Image.fromarray(np.full((8, 8, 3), grey, np.uint8)) for grey in range(10, 250, 4)]
    >>> def embed_images(pictures):
    ...     return [[picture.getpixel((0, 0))[0], 128.0] for picture in pictures]
    >>> def embed_texts(texts):
    ...     return [[len(text), 40.0] for text in texts]
    >>> found = plumbline.audit(
    ...     (embed_images, embed_texts), images=faces, labels={"gender": ["woman", "man"] * 30}, suites=["crime"]
    ... )
    >>> found.table.filter(metric="harm_rate")["n"].to_list()
    [60, 60]
    """
    embedder = embedder_of(model, preprocess, tokenizer)
    pictures = embed_pictures(embedder, images, batch=batch)
    held = {"logit": embedder.logit, "logit_scale": embedder.logit_scale, "image_ids": pictures.ids}
    return audit_features(
        pictures.vectors, text_features=embedder.texts, labels=labels, suites=suites, name=name, **held | options
    )


def audit_features(
    image_features: Any,
    *,
    text_features: Texts,
    labels: Any = None,
    suites: Sequence[str | Suite] | None = None,
    classes: str | None = None,
    wording: str = "released",
    name: str = "model",
    dataset: str = "images",
    image_ids: Sequence[str] | None = None,
    attributes: Sequence[str] = (),
    crosses: Sequence[Sequence[str]] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    min_shown: int = MIN_SHOWN,
    filters: Mapping[str, str] | None = None,
    logit: Logit = "dot",
    logit_scale: float | None = None,
    seed: int | np.random.Generator = MetricSettings.seed,
    margins: Mapping[str, float] | None = None,
    **statistics: Any,
) -> Audit:
    """Audit vectors that are there already, with the numbers that the pipeline computes of them.

    Parameters
    ----------
    image_features : (n, d) float
        Tensor, array, frame or lists; of any norm.
    text_features : (t, d) float, mapping of text to (d,), or callable
        In the order of `plumbline.prompts(suites, ...)`; by text; or a function of texts, which is asked once.
    labels : table of n rows, optional
        A polars or pandas frame, a mapping of column to values or a sequence of mappings, with columns such as
        `gender`, `race`, `age_group`, and `image_id` where there is one. A missing label leaves its image out of that
        attribute alone. Without labels the images are a control: their spread and rates over all of them are computed.
    suites : sequence of str or Suite, optional
        By name, or by the path of a file of your own; by default every suite that the labels can answer.
    classes : str, optional
        The label set of the Trident suites that a column holds, such as `fairface`; by default the one whose labels
        are those of its column, of several the one with the most.
    wording : str
        Of the Trident prompts.
    name, dataset : str
        What model and images are called in the table; random draws are named after them.
    image_ids : sequence of str, optional
        By default the digest of each vector. Draws follow the ids: the order of the images changes no
        estimate, and where they come without `set_id` no other number. Draws of whole sets follow the order of the
        rows too: keep it from one audit to the next.
    attributes : sequence of str
        Further columns of the labels that people are compared by, such as `department`, of any number of groups.
    crosses : sequence of sequences of str
        Attributes to cross, such as `[("disability", "gender")]`; race and gender are crossed anyway.
    bins : mapping of str to sequence of float, optional
        Column of numbers -> ascending limits of the groups that people are compared by, such as
        `{"tenure": (0, 2, 10, 40)}`. A group holds its lower limit; the last one holds both. Years in `age` become
        `age_group`, without limits FairFace's groups.
    min_shown : int
        Images of the smallest group that is shown; smaller ones are left out, and whatever would let them be worked
        out. 1 shows every group.
    filters : mapping of str to str, optional
        Suite -> a named row filter of the published studies.
    logit : {"dot", "scaled_cosine"}
        What the Trident suites compare: products of the vectors, as for CLIP, or cosines times `logit_scale`.
    logit_scale : float, optional
        The model's own factor from cosine to logit; the suite `templates` needs it.
    seed : int or Generator
        Equal seeds give equal numbers.
    margins : mapping of str to float, optional
        Metric -> the largest difference that does not matter.
    **statistics
        Other fields of `plumbline.metrics.MetricSettings`: `resamples`, `permutations`, `confidence`, `min_group`,
        `label_margin`, `label_error`, `skew_k`.

    Returns
    -------
    Audit

    Raises
    ------
    EncodingError
        If vectors are not finite, do not fit each other, or one of a text is missing.
    DatasetError
        If the labels are no table of n rows with a column that people are compared by.
    ConfigError
        If a suite, label set, filter or setting does not exist, a suite cannot be answered, or `name` or `dataset`
        holds control characters.

    Examples
    --------
    >>> import numpy as np
    >>> import plumbline
    >>> rng = np.random.default_rng(0)
    >>> labels = {"gender": rng.choice(["woman", "man"], 400)}
    >>> texts = plumbline.prompts(["crime"])
    >>> audit = plumbline.audit_features(
    ...     rng.normal(size=(400, 16)), text_features=rng.normal(size=(len(texts), 16)), labels=labels,
    ...     suites=["crime"], resamples=200, permutations=200,
    ... )
    >>> audit.table.filter(metric="max_skew", definition="mean_over_pairs").select("event", "n").rows()
    [('crime', 400)]
    """
    settings = _settings(seed, statistics)
    _require_margins(margins or {})
    require_name(name, where="name")
    require_name(dataset, where="dataset")
    attributes = (attributes,) if isinstance(attributes, str) else attributes
    if crosses and all(isinstance(name, str) for name in crosses):
        crosses = (tuple(map(str, crosses)),)
    images = as_vectors(image_features, where="image_features")
    ids = _ids(image_ids, images)
    records, unused = records_of(labels, ids, dataset=dataset, attributes=attributes, bins=bins)
    if labels is not None and (min_shown > 1 or crosses):
        records, too_small = _shown(records, crosses, least=min_shown)
        unused |= too_small
    asked_of = asked_suites(suites, records, classes=classes, wording=wording)
    needing = [suite for suite in asked_of if suite.family == "templates"] if logit_scale is None else []
    if suites is None and logit == "dot":
        asked_of = [suite for suite in asked_of if suite not in needing]
        unused |= {suite.id: "it needs `logit_scale`, such as 100.0" for suite in needing}
    elif needing or (logit_scale is None and logit == "scaled_cosine"):
        raise ConfigError(
            f"{' and '.join(suite.id for suite in needing) or logit} needs the model's own factor from cosine to logit",
            where="logit_scale",
            found="None",
            expected="such as 100.0, or float(model.logit_scale.exp())",
        )
    cell, embedded = cell_of_vectors(
        images,
        text_features,
        records,
        asked_of,
        name=name,
        dataset=dataset,
        filters=filters or {},
        logit=logit,
        logit_scale=logit_scale,
        unlabelled=labels is None,
    )
    frames = [cell_frames(cell, embedded, settings, least=min_shown), text_space_frames(name, embedded, settings)]
    absent = _left_out(suites, asked_of, records, classes=classes)
    return Audit(table_of(frames, settings, margins or {}), settings, cell, absent | unused)


class EmbeddedCell(NamedTuple):
    """A cell, and the vectors of the texts that it was asked, by text."""

    cell: Cell
    texts: dict[str, NDArray[np.float32]]


def cell_of_vectors(
    images: NDArray[np.float32],
    text_features: Texts,
    records: pl.DataFrame,
    asked: Sequence[Suite],
    *,
    name: str,
    dataset: str,
    filters: Mapping[str, str],
    logit: Logit,
    logit_scale: float | None,
    shared_space: bool = True,
    unlabelled: bool = False,
) -> EmbeddedCell:
    """Return the responses of a model to some suites.

    Parameters
    ----------
    images : (n, d) float32
    records : DataFrame
        `EXTENDED_SCHEMA` and further attributes, a row an image.
    shared_space : bool
        Whether a cosine of an image and a text means something.
    unlabelled : bool
        Whether nothing is known of the images: then their spread is measured too.
    """
    embedded = _embedded(text_features, asked, width=images.shape[1])
    owners = texts_of(asked)
    vectors = np.stack([embedded[text] for text in owners]) if owners else np.zeros((0, images.shape[1]), np.float32)
    cell = build_cell(
        model=name,
        dataset=dataset,
        records=records,
        arrays=text_products(images, vectors, list(owners.values())),
        texts=list(owners),
        suites=asked,
        filters={suite: row_filter(chosen) for suite, chosen in filters.items()},
        shared_space=shared_space,
        scaled=logit == "scaled_cosine",
        logit_scale=logit_scale or 1.0,
        images=images if unlabelled else None,
    )
    return EmbeddedCell(cell, embedded)


def _shown(
    records: pl.DataFrame, crosses: Sequence[Sequence[str]], *, least: int
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the records with crossed attributes and without the labels of groups too small to be shown; and those."""
    groups = [name for name in audited_attributes(records) if records[name].count()]
    both = [("race", "gender")] if {"race", "gender"} <= {*groups} else []
    if strange := [name for names in crosses for name in names if name not in groups]:
        raise ConfigError(
            "only attributes with labels can be crossed",
            where="crosses",
            found=examples(strange),
            expected=", ".join(groups),
        )
    crossed = {crossed_name(names): names for names in (*both, *crosses)}
    shown, lost = labels_of_shown_groups(records, groups, crossed, least=least)
    # Which groups these are is not told: it would tell of their few people.
    why = (
        f"their group has fewer images than `min_shown`, {least}, or would let one that has be worked out; "
        "`min_shown=1` shows all groups"
    )
    return shown, {f"label `{name}` of {rows:,} images": why for name, rows in lost.items() if rows}


class CellFrames(NamedTuple):
    """The rows of one cell, or of a text space, and what they were computed from."""

    identity: str
    frames: list[pl.DataFrame]


def cell_frames(
    cell: Cell,
    embedded: Mapping[str, NDArray[np.float32]],
    settings: MetricSettings,
    *,
    least: int,
    own: Sequence[OwnMetric] = (),
    dataset_digest: str | None = None,
    checkpoint: str | None = None,
) -> CellFrames:
    """Return the rows of every family; groups of fewer than `least` images have no number.

    Parameters
    ----------
    own : sequence of OwnMetric
        Metrics of an audit file's own.
    dataset_digest : str, optional
        By default that of the records.
    checkpoint : str, optional
        Sha256 of the weights, where they are files.
    """
    digest = dataset_digest or digest_of(cell.records, pl.DataFrame(schema=QUARANTINE_SCHEMA))
    vectors = _vectors_digest(embedded)
    hashes = [[name, logits.suite.hash, cell.rows(name).sum().item()] for name, logits in cell.logits.items()]
    code = [[metric.name, metric.digest] for metric in own]
    identity = digest_json([__version__, cell.model, digest, vectors, hashes, vars(settings), *code])
    families = [own_family(own) if family is OWN_METRICS else family for family in FAMILIES.values()]
    frames = [family_rows(family, cell, settings=settings) for family in families]
    if least > 1:
        persons = personal_attributes(cell.records)
        frames = [without_small_groups(frame, persons, least=least) for frame in frames]
    lineage = {"cell_id": identity, "dataset_digest": digest, "checkpoint_sha256": checkpoint}
    return CellFrames(identity, [with_lineage(frame, **lineage) for frame in frames])


def text_space_frames(
    model: str, embedded: Mapping[str, NDArray[np.float32]], settings: MetricSettings, *, checkpoint: str | None = None
) -> CellFrames:
    """Return the rows of a model's text space, of the suites whose texts have vectors."""
    suites = [load_suite(name) for name in TEXT_SPACE_SUITES]
    known = [suite for suite in suites if all(text in embedded for text in suite.texts)]
    identity = digest_json([__version__, model, _vectors_digest(embedded), vars(settings)])
    rows = text_space_rows(model, known, embedded, settings=settings)
    return CellFrames(identity, [with_lineage(rows, cell_id=identity, checkpoint_sha256=checkpoint)])


def _vectors_digest(embedded: Mapping[str, NDArray[np.float32]]) -> str:
    return digest_json([[text, digest_bytes(vector.tobytes())] for text, vector in embedded.items()])


def table_of(cells: Sequence[CellFrames], settings: MetricSettings, margins: Mapping[str, float]) -> pl.DataFrame:
    """Return the metric table of some cells; q is over all of them.

    Probe rates that are normalised over single and mixed tests stand only where both were made.
    """
    table = metric_table(
        [frame for cell in cells for frame in cell.frames],
        audit_id=digest_json([*(cell.identity for cell in cells), dict(margins)]),
        confidence=settings.confidence,
        margins=margins,
        permutations=settings.permutations,
    )
    cell = ["model", "dataset"]
    joint = (pl.col("metric") == "probe_rate_normalised") & (pl.col("definition") == "joint")
    mixed = table.filter(suite="trident_mixed").select(cell).unique()
    alone = table.filter(joint).join(mixed, on=cell, how="anti").select(cell).unique()
    return (
        pl.concat([table.filter(~joint), table.filter(joint).join(alone, on=cell, how="anti")])
        if alone.height
        else table
    )


def _ids(given: Sequence[Any] | None, images: NDArray[np.float32]) -> list[str]:
    """Return the id of each image, by default the digest of its vector."""
    return [digest_bytes(row.tobytes()) for row in images] if given is None else list(map(str, given))


def _require_margins(margins: Mapping[str, float]) -> None:
    known = equivalence_metrics()
    if unknown := sorted(set(margins) - set(known)):
        names = examples(unknown) + suggestion(unknown[0], known)
        raise ConfigError("no margin is known for it", where="margins", found=names, expected=", ".join(known))


def _settings(seed: int | np.random.Generator, statistics: Mapping[str, Any]) -> MetricSettings:
    known = [name for name in MetricSettings.__dataclass_fields__ if name != "seed"]
    if unknown := sorted(set(statistics) - set(known)):
        names = examples(unknown) + suggestion(unknown[0], known)
        raise ConfigError("there is no such option", where="statistics", found=names, expected=", ".join(known))
    return MetricSettings(seed=as_seed(seed), **statistics)


# --- What is asked.


def prompts(suites: Sequence[str | Suite], *, classes: str | None = None, wording: str = "released") -> tuple[str, ...]:
    """Return every text of some suites once, in the order in which `audit_features` takes an array of their vectors.

    Parameters
    ----------
    suites : sequence of str or Suite
    classes, wording : str
        Of the Trident suites.

    Raises
    ------
    ConfigError
        If a suite or label set does not exist.

    Examples
    --------
    >>> import plumbline
    >>> texts = plumbline.prompts(["crime"])
    >>> texts[0], len(texts)
    ('a photo of a white man', 21)
    """
    return tuple(texts_of(_built(suite, classes, wording) for suite in _listed(suites)))


def _listed(suites: Any) -> list[str | Suite]:
    """Return some suites, or one alone, as a list; paths as texts.

    Raises
    ------
    ConfigError
        If there is none.
    """
    one = isinstance(suites, str | Path | Suite)
    listed = [str(suite) if isinstance(suite, Path) else suite for suite in ([suites] if one else suites)]
    if not listed:
        raise ConfigError("no suite is asked", where="suites", found="none", expected=", ".join(suite_names()))
    return listed


def asked_suites(
    suites: Sequence[str | Suite] | None, records: pl.DataFrame, *, classes: str | None, wording: str
) -> list[Suite]:
    """Return the suites that are asked of some records; those that are not named are left out where they cannot be."""
    named = suites is not None
    wanted = _listed(suites) if suites is not None else _by_default()
    chosen = []
    for suite in wanted:
        which = suite if isinstance(suite, str) else suite.id
        if which in TRIDENT_SUITES and isinstance(suite, str):
            labels = classes or _label_set(records, named)
            lacks_gender = which == "trident_composite" and not records["auto_gender"].count()
            if not named and (labels is None or lacks_gender):
                continue
            chosen.append(_built(suite, labels, wording))
        elif which in SCENE_SUITES and not named and not records["scene"].count():
            continue
        else:
            chosen.append(_built(suite, None, wording))
    return chosen


def _left_out(
    suites: Sequence[str | Suite] | None, asked: Sequence[Suite], records: pl.DataFrame, *, classes: str | None
) -> dict[str, str]:
    """Return what was not asked -> why: suites that these labels cannot answer, tests that need further labels."""
    ids = {suite.id for suite in asked}
    why = {"pata_captions": "the labels have no `scene`"}
    if {*TRIDENT_SUITES} & ids and not records["auto_gender"].count():
        why["mixed Trident tests"] = "the labels have no `auto_gender`"
    for name in TRIDENT_SUITES:
        lacks = classes is None and _label_set(records, False) is None
        why[name] = "no column holds a label set of these suites" if lacks else "the labels have no `auto_gender`"
    absent = {name for name in _by_default() if name not in ids} if suites is None else set()
    return {name: reason for name, reason in why.items() if name in absent or name == "mixed Trident tests"}


def _by_default() -> list[str]:
    left_out = {"gender_labels", *VARIANT_OF}
    return [name for name in suite_names() if name not in left_out]


def _built(suite: str | Suite, classes: str | None, wording: str) -> Suite:
    if isinstance(suite, Suite):
        return suite
    if is_suite_file(suite):
        return suite_of(read_own_suite(Path(suite).expanduser()))
    of_labels = {"classes": classes, "wording": wording} if suite in TRIDENT_SUITES else {}
    return load_suite(suite, **of_labels)  # type: ignore[arg-type]


def _label_set(records: pl.DataFrame, needed: bool) -> str | None:
    """Return the label set that a column of the records holds, every label of it and none beside."""
    from plumbline.catalog.suites import trident_class_sets

    sets = {name: load_suite("trident", classes=name) for name in trident_class_sets()}
    held = [
        name
        for name, suite in sets.items()
        if suite.attribute in records.columns
        and set(records[suite.attribute].drop_nulls().unique()) == set(suite.class_labels)
    ]
    if held or not needed:
        return max(held, key=lambda name: len(sets[name].class_labels), default=None)
    raise ConfigError(
        "the Trident suites need a label set, and no column of the labels holds one",
        where="classes",
        found="labels that are those of none",
        expected="; ".join(f"{name}: {each.attribute} {', '.join(each.class_labels)}" for name, each in sets.items()),
        hint="name the set that a column holds with `classes`; labels of no class are then left out",
    )


def _embedded(given: Texts, suites: Sequence[Suite], *, width: int) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of the texts of some suites, and of the bare words of a text space where they are there."""
    texts = list(texts_of(suites))
    further = [text for text in load_suite("perception_words").texts if text not in texts]
    measured = any(suite.id in TEXT_SPACE_SUITES for suite in suites)
    if callable(given):
        wanted = [*texts, *further] if measured else texts
        vectors = as_vectors(given(wanted), where="text_features", rows=len(wanted)) if wanted else np.zeros((0, width))
    elif isinstance(given, Mapping):
        if lacking := [text for text in texts if text not in given]:
            raise EncodingError(
                f"{len(lacking)} of {len(texts)} texts have no vector",
                where="text_features",
                found=f"nothing for {examples(f'`{text}`' for text in lacking)}",
                expected="a vector for every text of `plumbline.prompts`",
            )
        wanted = [*texts, *(text for text in further if measured and text in given)]
        vectors = as_vectors([np.asarray(given[text]) for text in wanted], where="text_features", rows=len(wanted))
    else:
        wanted = texts
        where = f"text_features, a row for each of the {len(texts)} texts of `plumbline.prompts(suites)`"
        vectors = as_vectors(given, where=where, rows=len(texts))
    if vectors.shape[1] != width:
        raise EncodingError(
            "vectors of images and of texts must be of one space",
            where="text_features",
            found=f"{vectors.shape[1]} numbers a text, {width} an image",
            expected=f"{width}",
        )
    return dict(zip(wanted, vectors))
