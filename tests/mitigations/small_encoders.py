"""Small encoders that mitigations are fitted to: a planted one, and one that embeds no text twice."""

from pathlib import Path

import numpy as np

from plumbline.checkpoints.device import Placement
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.mitigations.text_mitigations import FitContext
from resources.checkout import PROJECT

BAZAAR = PROJECT / "plumbline/world/checkpoints/small-bazaar-3k"


def load(folder):
    files = checkpoint_files("x", f"local-dir:{folder}", project=Path(), fetched=Path("nowhere"))
    return load_encoder(files, Placement())


def fit(encoder, rows, settings, *, seed, store=None, progress=None, pairs=None):
    """Fit a mitigation of texts on rows that are there, whatever the attribute, and on pairs, whatever the dataset."""
    context = FitContext(
        encoder,
        lambda texts: encoder.embed_texts(texts),
        lambda *_, **__: rows,
        seed,
        store,
        progress,
        pairs=lambda _: pairs,
    )
    return settings.fit(context)


class Remembering:
    """An encoder that embeds no text twice, so that fitting again is quick."""

    def __init__(self, encoder):
        self.family, self.identity, self.device = encoder.family, encoder.identity, encoder.device
        self.width, self.logit_scale, self.logit_bias = encoder.width, encoder.logit_scale, encoder.logit_bias
        self._encoder, self._known = encoder, {}

    def embed_texts(self, texts):
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= zip(new, self._encoder.embed_texts(new))
        return np.array([self._known[text] for text in texts])
