"""The input of a metric family: everything computed for one encoder on one dataset."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.blocks import Rows, blocks, map_rows
from plumbline.catalog.schema import ESTIMATE, IDENTIFYING, POWER, Row
from plumbline.catalog.suites import Suite
from plumbline.datasets.filters import RowFilter
from plumbline.errors import MetricError, StorageError
from plumbline.parts import rows_of_parts
from plumbline.reasons import encode, in_words, joined, reason
from plumbline.statistics.groups import attribute_groups


@dataclass(frozen=True)
class ProductRows:
    """Responses to some texts that follow from dot products of embeddings, computed when their rows are asked for.

    Attributes
    ----------
    products : (n, t) float32
        Dot products of images and texts as the encoder gives them, perhaps on the disk.
    columns : (m,) int64
        Which of the texts.
    norms : ((n,), (m,)) float32 or None
        Of the images and of these texts, by which products are divided; None for the products themselves.
    factor : float
        What the quotients are multiplied with.
    """

    products: Rows
    columns: NDArray[np.int64]
    norms: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    factor: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n, m)."""
        return len(self.products), len(self.columns)

    def __len__(self) -> int:
        return len(self.products)

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self))
        parts = list(blocks(start, stop, self.products.shape[1])) or [slice(start, start)]
        return self._of(parts[0]) if len(parts) == 1 else np.concatenate([self._of(part) for part in parts])

    def _of(self, rows: slice) -> NDArray[Any]:
        values = self.products[rows][:, self.columns]
        if self.norms is None:
            return values
        images, texts = self.norms
        values = values / images[rows, None] / texts
        return values if self.factor == 1 else np.float32(self.factor) * values


@dataclass(frozen=True)
class SuiteLogits:
    """Responses of one encoder to every image of a dataset and every candidate of a suite.

    They may lie on the disk: what is computed from all of them takes them block by block, by `plumbline.blocks`.

    Attributes
    ----------
    logits : (n, m) float32
        As the released Trident code defines them for each encoder family (CLIP: raw dot products; ALIGN:
        `logits_per_image`; BridgeTower: image-text-matching logit 1; OWLv2: mean class logit over the patches).
        Rows follow the records, columns the suite.
    cosine : (n, m) float32 or None
        Cosines of the embeddings; None where the family has no space that images and texts share.
    logit_scale : float
        The checkpoint's own factor from cosine to logit; 1 where there is no cosine.
    """

    suite: Suite
    logits: Rows
    cosine: Rows | None = None
    logit_scale: float = 1.0

    @classmethod
    def of_products(
        cls,
        suite: Suite,
        products: Rows,
        *,
        columns: Sequence[int],
        image_norms: NDArray[np.float32],
        text_norms: NDArray[np.float32],
        logit_scale: float,
        scaled: bool,
    ) -> SuiteLogits:
        """Build the responses of an encoder that embeds images and texts in one space.

        Parameters
        ----------
        products : (n, t) float32
            Dot products of the embeddings as the encoder gives them.
        columns : sequence of int, length m
            The text of each candidate of the suite.
        image_norms, text_norms : (n,), (t,) float32
        scaled : bool
            Whether the family's logit is the cosine times the checkpoint's own factor (else the dot product).
        """
        chosen = np.array(columns, dtype=np.int64)
        norms = (image_norms, text_norms[chosen])
        logits = ProductRows(products, chosen, norms, logit_scale) if scaled else ProductRows(products, chosen)
        return cls(suite, logits, ProductRows(products, chosen, norms), logit_scale)

    def by_template(
        self, words: Sequence[str], reduced: Callable[[NDArray[np.float64]], NDArray[Any]], rows: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Return what a function gives for the cosines of a templated suite, which it sees block by block.

        Parameters
        ----------
        words : sequence of str
            Words of the suite (or `category:word` for two categories that share a word); "" is the blank slot.
        reduced : callable
            (b, t, w) cosines of b images, every template of `suite.templates` with every word, to (b, ...).
        rows : (k,) int64
            The images, in the order of the result.

        Returns
        -------
        (k, ...) array

        Raises
        ------
        MetricError
            If the encoder has no cosine, or the suite lacks a word.
        """
        if self.cosine is None:
            raise MetricError(
                f"the suite `{self.suite.id}` compares cosines, and this encoder has none",
                expected="an encoder that embeds images and texts in one space",
            )
        column: dict[tuple[str, str], int] = {}
        for i, candidate in enumerate(self.suite.candidates):
            for name in (candidate.word, f"{candidate.category}:{candidate.word}"):
                column.setdefault((candidate.template, name), i)
        wanted = [(template, word) for template in self.suite.templates for word in words]
        if lacking := [pair for pair in wanted if pair not in column]:
            raise MetricError(
                f"the suite `{self.suite.id}` has no such word", found=", ".join(map(":".join, lacking[:3]))
            )
        chosen = np.array([column[pair] for pair in wanted], dtype=np.int64)

        def of_block(block: NDArray[np.float32]) -> NDArray[Any]:
            cosine = block[:, chosen].astype(np.float64)
            return reduced(cosine.reshape(len(block), len(self.suite.templates), len(words)))

        return map_rows(of_block, self.cosine, rows)

    @property
    def scores(self) -> Rows:
        """Return the scores whose argmax is the top-1 candidate: the cosines, or the logits where there are none."""
        return self.logits if self.cosine is None else self.cosine

    def top(self) -> NDArray[np.int64]:
        """Return the (n,) top-1 candidates by score; ties take the lower index."""
        return map_rows(lambda block: block.argmax(axis=1), self.scores)


class CellName(NamedTuple):
    """What is audited: an encoder on a dataset."""

    model: str
    dataset: str


@dataclass(frozen=True)
class Cell:
    """One encoder on one dataset: its responses, and the labels of the images.

    Attributes
    ----------
    records : DataFrame
        One row per accepted image: `image_id, split, gender, race, age_group, ...` and the automatic labels
        `auto_gender, auto_gender_probability, auto_gender_margin`. Rows follow the logits.
    logits : mapping of str to SuiteLogits
        By suite id.
    keep : mapping of str to (n,) bool
        By suite id: the rows that the audit's named filter keeps for that suite (all, where absent).
    relabelled : mapping of str to DataFrame
        By suite id: the records with labels merged as that filter says, where it merges any.
    images : (n, d) float32 or None
        Raw embeddings of the images, where they are loaded: for small cells without any label.
    """

    model: str
    dataset: str
    records: pl.DataFrame
    logits: Mapping[str, SuiteLogits]
    keep: Mapping[str, NDArray[np.bool_]]
    relabelled: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    images: NDArray[np.float32] | None = None

    @property
    def name(self) -> CellName:
        """Return the encoder and the dataset."""
        return CellName(self.model, self.dataset)

    def labels(self, suite: str) -> pl.DataFrame:
        """Return the records with their labels merged as the suite's filter says, if it merges any."""
        return self.relabelled.get(suite, self.records)

    def rows(self, suite: str) -> NDArray[np.bool_]:
        """Return the (n,) bool mask of the rows that the suite's filter keeps."""
        mask = self.keep.get(suite)
        return np.ones(self.records.height, dtype=bool) if mask is None else mask

    def reordered(self, order: NDArray[np.int64]) -> Cell:
        """Return the cell with its images in another order, (n,) rows of this one; all responses are read."""

        def turned(each: SuiteLogits) -> SuiteLogits:
            cosine = None if each.cosine is None else each.cosine[:][order]
            return replace(each, logits=each.logits[:][order], cosine=cosine)

        return replace(
            self,
            records=self.records[order],
            logits={name: turned(each) for name, each in self.logits.items()},
            keep={suite: mask[order] for suite, mask in self.keep.items()},
            relabelled={suite: records[order] for suite, records in self.relabelled.items()},
            images=None if self.images is None else self.images[order],
        )


def texts_of(suites: Iterable[Suite]) -> dict[str, str]:
    """Return every text of some suites -> the first suite that has it: what is embedded for a cell, in this order."""
    first: dict[str, str] = {}
    for suite in suites:
        for text in suite.texts:
            first.setdefault(text, suite.id)
    return first


def text_products(
    images: NDArray[np.float32], texts: NDArray[np.float32], suite_of: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """Multiply images with texts, suite by suite: the last bits of a product depend on how many columns it has.

    Parameters
    ----------
    images, texts : (n, d), (t, d) float32
        Embeddings, not normalised.
    suite_of : sequence of str, length t
        The suite of each text, see `texts_of`.

    Returns
    -------
    dict
        `raw` (n, t), `image_norm` (n,) and `text_norm` (t,), as `build_cell` takes them.
    """
    raw = np.empty((len(images), len(texts)), dtype=np.float32)
    suites = np.array(suite_of)
    for suite in dict.fromkeys(suite_of):
        raw[:, suites == suite] = images @ texts[suites == suite].T
    return {"raw": raw, "image_norm": np.linalg.norm(images, axis=1), "text_norm": np.linalg.norm(texts, axis=1)}


def build_cell(
    *,
    model: str,
    dataset: str,
    records: pl.DataFrame,
    arrays: Mapping[str, Rows],
    texts: Sequence[str],
    suites: Iterable[Suite],
    filters: Mapping[str, RowFilter],
    shared_space: bool,
    scaled: bool,
    logit_scale: float,
    images: NDArray[np.float32] | None = None,
    columns: Mapping[str, Sequence[int]] | None = None,
) -> Cell:
    """Build a cell from stored arrays.

    Parameters
    ----------
    arrays : mapping
        `raw`, the (n, t) responses to each text; where images and texts share a space also `image_norm` (n,) and
        `text_norm` (t,). The responses are not read here.
    texts : sequence of length t
        The text of each column of `raw`.
    filters : mapping of str to RowFilter
        By suite id: which rows are kept, and which labels are merged.
    shared_space, scaled : bool
        Whether the encoder embeds both in one space, and whether its logit is the scaled cosine; `logit_scale` is the
        checkpoint's own factor.
    images : (n, d) float32, optional
        As `Cell.images`.
    columns : mapping of str to sequence of int, optional
        By suite id: the columns of its candidates, where a text has another response in each suite.

    Raises
    ------
    StorageError
        If the arrays are of another length than the records, or lack a text of a suite.
    """
    where = f"{dataset}|{model}"
    if len(arrays["raw"]) != records.height:
        raise StorageError(
            "logits and records of this cell differ in length",
            where=where,
            found=f"{len(arrays['raw'])} rows of logits",
            expected=f"{records.height} records",
            hint="materialise `image_embeddings` of this cell again",
        )
    column = {text: i for i, text in enumerate(texts)}
    norms = (arrays["image_norm"][:], arrays["text_norm"][:]) if shared_space else None
    logits = {}
    for suite in suites:
        if lacking := [text for text in suite.texts if text not in column]:
            raise StorageError(
                f"the stored logits of this cell lack prompts of the suite `{suite.id}`",
                where=where,
                found=f"nothing for {len(lacking)} prompts, such as `{lacking[0]}`",
                expected="every prompt that the audit file asks for",
                hint="materialise `text_embeddings` of this encoder and `probe_logits` of this cell again",
            )
        chosen = [column[text] for text in suite.texts] if columns is None else list(columns[suite.id])
        logits[suite.id] = (
            SuiteLogits(suite, ProductRows(arrays["raw"], np.array(chosen, dtype=np.int64)))
            if norms is None
            else SuiteLogits.of_products(
                suite,
                arrays["raw"],
                columns=chosen,
                image_norms=norms[0],
                text_norms=norms[1],
                logit_scale=logit_scale,
                scaled=scaled,
            )
        )
    merging = {each.name: each for each in filters.values() if each.changes_labels}
    renamed = {name: each.relabelled(records) for name, each in merging.items()}
    return Cell(
        model=model,
        dataset=dataset,
        records=records,
        logits=logits,
        keep={suite: keep(records) for suite, keep in filters.items()},
        relabelled={suite: renamed[each.name] for suite, each in filters.items() if each.changes_labels},
        images=images,
    )


# --- Columns common to all rows.


def base_row(cell: Cell | CellName, **columns: object) -> Row:
    """Return the columns that every plain estimate of a cell has."""
    row: Row = {"model": cell.model, "dataset": cell.dataset, "condition": "before", "statistic": "estimate"}
    return row | columns


def personal_attributes(records: pl.DataFrame) -> list[str]:
    """Return the attributes of persons that metric rows of some records may be about, crossed with gender or not."""
    persons = [groups.attribute for groups in attribute_groups(records)]
    return ["auto_gender", *persons, *(f"{name}_gender" for name in persons)]


def without_small_groups(frame: pl.DataFrame, attributes: Collection[str], *, least: int) -> pl.DataFrame:
    """Return metric rows in which no number is shown of fewer images of a group than some.

    As the images of a cell may be a part of the dataset's, such as those that no mitigation was fitted on, a group that
    is shown may be small there. Its rows stay, without numbers (`too_few_to_show`). Where the rows that are left out of
    one comparison hold fewer images together, the next smallest group is left out too.

    Parameters
    ----------
    frame : DataFrame
        `METRIC_SCHEMA`.
    attributes : collection of str
        Of persons.
    least : int
        Images; 1 leaves all as it is.
    """
    sized = pl.col("group").is_not_null() & pl.col("attribute").is_in(list(attributes)) & (pl.col("n") > 0)
    if least <= 1 or frame.filter(sized & (pl.col("n") < least)).is_empty():
        return frame
    comparison = [name for name in IDENTIFYING if name != "group"]
    numbered = frame.with_row_index("row")
    ahead = pl.col("n").cum_sum().over(comparison) - pl.col("n")
    hidden = (pl.col("n") < least) | ((ahead > 0) & (ahead < least))
    rows = numbered.filter(sized).sort("n", "group").filter(hidden)["row"].to_list()
    why = joined(reason("too_few_to_show", least=least))
    known: dict[str, object] = {"reason": in_words(why), "reason_codes": encode(why), "value": math.nan}
    return numbered.with_columns(
        pl.when(pl.col("row").is_in(rows).not_()).then(pl.col(name)).otherwise(pl.lit(known.get(name))).alias(name)
        for name in (*ESTIMATE, "reason_codes", *POWER)
    ).drop("row")


RowPart = partial[Any]
"""Gives some rows of a cell, computed from its arguments alone; its random draws do not depend on any other part.

Its arguments are what it reads and no more, so that its rows are taken over while these are the same: the name of the
cell, never the cell with the responses to all suites. See `plumbline.parts`.
"""


def compute_rows(parts: Iterable[RowPart]) -> list[Row]:
    """Return the rows of all parts, in their order; the parts run in threads."""
    # The last parts are those of the most groups and take longest: begun first, they leave no core idle at the end.
    return list(chain.from_iterable(reversed(rows_of_parts(list(parts)[::-1]))))


def flag_clustering(rows: list[Row], records: pl.DataFrame) -> list[Row]:
    """Flag rows whose interval treats clustered images as independent.

    Clusters are a dataset's counterfactual sets or CausalFace's seeds: the images of one show one person with one
    thing changed. Known limitation: these intervals resample images, not clusters, and may be too narrow. Rows with a
    p come from whole clusters.
    """
    if "set_id" not in records.columns:
        return rows
    set_ids = records["set_id"].drop_nulls()
    if set_ids.n_unique() == len(set_ids):
        return rows
    note = reason("images_as_independent", images=len(set_ids), clusters=set_ids.n_unique())
    return [
        row
        if row.get("ci_low") is None or row.get("p") is not None
        else row | {"reason": joined(row.get("reason"), note)}  # type: ignore[arg-type]
        for row in rows
    ]
