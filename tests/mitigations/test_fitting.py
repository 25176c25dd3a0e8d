"""Mitigations of texts are fitted one by one: what cannot be is left out or refused; judged images are never used."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from plumbline.errors import MetricError, StorageError
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.fitting import fit_text_mitigations
from plumbline.mitigations.text_mitigations import FitContext, FittedMitigation

TEXTS = ("a photo of a thief", "a photo of a doctor", "a photo of a cat")
FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
RECORDS = pl.DataFrame({"image_id": ["a", "b", "c"], "split": ["train", "test", None]})


class Scaled(BiasPromptsSettings):
    """Multiplies features by what `strength` says, and was fitted on some images."""

    train_ids: tuple[str, ...] = ()
    strength: float = 2.0

    def fit(self, context):
        if self.strength < 0:
            raise MetricError("nothing to train on", hint="another sign")
        if context.progress is not None:
            context.progress(1, 1)
        settings = {"method": "bias_prompts"}
        return FittedMitigation(settings, {"by": np.float32([self.strength])}, "digest", train_ids=self.train_ids)


@pytest.fixture(autouse=True)
def apply(monkeypatch):
    monkeypatch.setattr(BiasPromptsSettings, "apply", staticmethod(lambda f, e, t, x: x * f.parameters["by"]))


def fit(settings_of, **given):
    context = FitContext(SimpleNamespace(), embed=None, rows=None, seed=0)
    return fit_text_mitigations(
        settings_of, context, records=RECORDS, texts=TEXTS, features=FEATURES, where="faces|encoder", **given
    )


def test_each_is_fitted_with_its_own_progress_and_applied_to_the_texts():
    seen = []

    @contextmanager
    def progress_of(name):
        yield lambda done, total: seen.append((name, done, total))

    fitted = fit({"two": Scaled(train_ids=("a",)), "three": Scaled(strength=3)}, progress_of=progress_of)
    assert seen == [("two", 1, 1), ("three", 1, 1)]
    assert fitted.texts == TEXTS and fitted.absent == {} and fitted.before is FEATURES
    assert list(fitted.fits) == ["two", "three"] and fitted.fits["two"].train_ids == ("a",)
    for name, factor in (("two", 2), ("three", 3)):
        np.testing.assert_allclose(fitted.features[name], factor * FEATURES)


def test_what_cannot_be_fitted_is_left_out_with_the_reason():
    fitted = fit({"none": Scaled(strength=-1), "flat": Scaled(strength=0), "two": Scaled()})
    assert list(fitted.fits) == list(fitted.features) == ["two"]
    assert fitted.absent["none"] == "nothing to train on"
    assert "`flat` leaves nothing of some texts" in fitted.absent["flat"]


@pytest.mark.parametrize("judged", ["b", "c"])
def test_a_fit_on_judged_images_is_refused(judged):
    with pytest.raises(StorageError, match="`leak` was fitted on images that it would be judged on") as error:
        fit({"leak": Scaled(train_ids=("a", judged))})
    assert error.value.where == "faces|encoder" and error.value.found == "1 images"
