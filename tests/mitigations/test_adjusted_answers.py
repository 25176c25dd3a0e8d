"""Answers of the first trial against a loop over images."""

from dataclasses import replace

import numpy as np
import pytest
from probed_cells import make_cell

from plumbline.errors import MetricError
from plumbline.mitigations import fit_cell
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import adjusted_winners, class_winners


@pytest.mark.parametrize("candidates", ["single", "composite"])
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_answers_are_those_of_the_first_trials_factors(candidates, mode):
    cell = make_cell(150)
    settings = LogitAdjustmentSettings(per_class=4, epochs=4, learning_rate=0.01, candidates=candidates, mode=mode)
    fit = fit_cell(cell, settings, seed=1)
    suite = "trident" if candidates == "single" else "trident_composite"
    c, dot = (7, 14)[candidates == "composite"], cell.logits[suite].logits.astype(float)
    tops, classes = (f(cell, fit) for f in (adjusted_winners, class_winners))
    assert tops.shape == classes.shape == (15, 150)
    for probe in range(15):
        for row in range(150):
            z = dot[row, [*range(c), c + probe]]
            z = z * fit.factors[probe, 0] if mode == "multiplicative" else z + fit.factors[probe, 0]
            assert tops[probe, row] == z.argmax() and classes[probe, row] == z[:c].argmax()
    assert (tops == c).any() and (tops != classes).sum() == (tops == c).sum()


def test_answers_of_another_cell_are_refused():
    cell = make_cell(100)
    fit = fit_cell(cell, LogitAdjustmentSettings(per_class=4), seed=1)
    for each in (adjusted_winners, class_winners):
        with pytest.raises(MetricError, match="nothing to adjust"):
            each(replace(cell, logits={}), fit)
    with pytest.raises(MetricError, match="do not fit"):
        adjusted_winners(cell, replace(fit, factors=np.ones((3, 3, 8))))
