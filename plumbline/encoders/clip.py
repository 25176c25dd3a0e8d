"""CLIP and ALIGN of transformers."""

from __future__ import annotations

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.encoders.transformers_encoder import ProjectedEncoder


class ClipEncoder(ProjectedEncoder):
    """CLIP as transformers has it; see TransformersEncoder for parameters and errors."""

    model_class = "CLIPModel"
    processor_class = "CLIPProcessor"

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self.logit_scale = float(self._model.logit_scale.exp().item())


class AlignEncoder(ProjectedEncoder):
    """ALIGN, an EfficientNet beside a BERT; see TransformersEncoder for parameters and errors.

    Its `logits_per_image` are cosines times `logit_scale`, which is one over the checkpoint's temperature.
    """

    model_class = "AlignModel"
    processor_class = "AlignProcessor"
    # The joined processor of ALIGN pads so; a longer text is padded to itself.
    padded_to = 64

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self.logit_scale = 1 / float(self._model.temperature.item())
