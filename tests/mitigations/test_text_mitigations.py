"""One interface over the mitigations of texts: what is none of them is refused with what there is."""

import numpy as np
import pytest

from plumbline.errors import MetricError
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.registry import apply_text_mitigation, fit_text_mitigation
from plumbline.mitigations.text_mitigations import FittedMitigation

OF_TEXTS = r"bias_prompts, prompt_array, saner"


@pytest.mark.parametrize("method", ["logit_adjustment", "of another version"])
def test_a_method_that_does_not_act_on_texts_is_not_applied(method):
    fitted = FittedMitigation(settings={"method": method}, parameters={}, fitted_on="x")
    with pytest.raises(MetricError, match=rf"{method}(.|\n)*{OF_TEXTS}"):
        apply_text_mitigation(fitted, None, ["a photo"], np.ones((1, 2), dtype=np.float32))


def test_a_method_that_does_not_act_on_texts_is_not_fitted():
    with pytest.raises(MetricError, match=rf"logit_adjustment(.|\n)*{OF_TEXTS}"):
        fit_text_mitigation(LogitAdjustmentSettings(), None)
