"""A cell as it is after a mitigation of its text features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits


def mitigated_cell(
    cell: Cell,
    texts: Sequence[str],
    features: NDArray[np.float32],
    images: NDArray[np.float32],
    *,
    logit_scale: float,
    scaled: bool,
    keep: NDArray[np.bool_],
) -> Cell:
    """Return a cell with the responses to mitigated text features, on the rows that no mitigation was fitted on.

    Features that nothing changed give the cell's own responses back, to float32 rounding.

    Parameters
    ----------
    cell : Cell
        Of n images, before the mitigation.
    texts : sequence of str
        The m prompts that have mitigated features, each once.
    features : (m, d) float32
        Of the texts, in the norm that the encoder gives them.
    images : (n, d) float32
        Embeddings as the encoder gives them, in the order of the cell's records.
    logit_scale, scaled
        The checkpoint's factor, and whether its family's logit is the scaled cosine: as `SuiteLogits.of_products`.
    keep : (n,) bool
        Rows to judge the mitigation on: every suite's own filter is narrowed to them.

    Returns
    -------
    Cell
        With the suites whose prompts are all among the texts. The others are left out, since their responses would
        be those before the mitigation, and so is `images`, which a mitigation of texts does not change.

    Raises
    ------
    MetricError
        If the shapes disagree, or a feature is not finite.
    """
    _check(cell, texts, features, images, keep)
    row = {text: i for i, text in enumerate(texts)}
    answered = [each.suite for each in cell.logits.values() if set(each.suite.texts) <= row.keys()]
    asked = list(dict.fromkeys(text for suite in answered for text in suite.texts))
    column = {text: i for i, text in enumerate(asked)}
    prompts = features[[row[text] for text in asked]]
    products = images @ prompts.T
    image_norms, text_norms = (np.linalg.norm(each, axis=1) for each in (images, prompts))
    logits = {}
    for suite in answered:
        chosen = [column[text] for text in suite.texts]
        logits[suite.id] = SuiteLogits.of_products(
            suite, products[:, chosen], image_norms=image_norms, text_norms=text_norms[chosen],
            logit_scale=logit_scale, scaled=scaled,
        )  # fmt: skip
    kept = {suite.id: cell.rows(suite.id) & keep for suite in answered}
    return replace(cell, logits=logits, keep=kept, images=None)


def _check(
    cell: Cell,
    texts: Sequence[str],
    features: NDArray[np.float32],
    images: NDArray[np.float32],
    keep: NDArray[np.bool_],
) -> None:
    n = cell.records.height
    fits = features.shape == (len(texts), images.shape[-1]) and len(images) == n and keep.shape == (n,)
    if not fits or len(set(texts)) != len(texts):
        raise MetricError(
            "a mitigated cell needs one feature for each text, and one embedding and one flag for each image",
            where=f"{cell.dataset}|{cell.model}",
            found=f"{len(texts)} texts ({len(set(texts))} different), features {features.shape}, "
            f"images {images.shape}, keep {keep.shape}",
            expected=f"(m, d), ({n}, d), ({n},)",
        )
    for name, array in (("text feature", features), ("image embedding", images)):
        if not (np.isfinite(array).all() and np.linalg.norm(array, axis=1).all()):
            raise MetricError(
                f"a mitigated cell has no answer to a {name} that is zero or not finite",
                where=f"{cell.dataset}|{cell.model}",
                hint="the mitigation left nothing of it: try a smaller step or fewer attributes",
            )
