"""The CLIP family of transformers."""

from __future__ import annotations

from plumbline.encoders.addresses import CheckpointFiles
from plumbline.encoders.encoder import Placement
from plumbline.encoders.transformers_encoder import ProjectedEncoder


class ClipEncoder(ProjectedEncoder):
    """CLIP as transformers has it; see TransformersEncoder for parameters and errors."""

    model_class = "CLIPModel"
    processor_class = "CLIPProcessor"

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self.logit_scale = float(self._model.logit_scale.exp().item())
