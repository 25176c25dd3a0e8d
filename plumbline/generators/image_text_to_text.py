"""Models of images and texts as transformers maps them: one adapter for every type with a processor of its own.

Messages, image tokens and tiles are those of the checkpoint's own processor. Where every layer's cache can be copied,
an image is read once for all prompts about it; else transformers' `generate` reads image and prompt together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plumbline.checkpoints.device import Placement
from plumbline.generators.backend import Answer, Asked, Decoding
from plumbline.generators.families import SHARES
from plumbline.generators.folders import GeneratorFiles
from plumbline.generators.prompt_format import PROBES, misplaced
from plumbline.generators.transformers_backend import Seen, TransformersBackend, recorded_image

if TYPE_CHECKING:
    from PIL.Image import Image

    from plumbline.generators.sampling import Read


class Shown(NamedTuple):
    """An image, and what was read of it.

    Attributes
    ----------
    image : PIL image
    ids : list of int
        Tokens up to the last one of the image; none where it is read with each prompt.
    read : Read or None
        These tokens, one row; None where it is read with each prompt.
    """

    image: Image
    ids: list[int]
    read: Read | None


class ImageTextBackend(TransformersBackend):
    """Reads the image, and what its format puts before it, once for all prompts; else with each prompt.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Attributes
    ----------
    shares : bool
        Whether an image is read once for all prompts about it.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, or its chat template takes no image and prompt.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        from PIL import Image

        super().__init__(files, placement)
        grey = Image.new("RGB", (64, 48), (127, 127, 127))
        self.shares = self._may_share(files) and self._comes_first(grey)

    def _may_share(self, files: GeneratorFiles) -> bool:
        from plumbline.generators.sampling import can_share

        return files.model_type in SHARES and can_share(self._model.config)

    def _comes_first(self, image: Image) -> bool:
        """Return whether what is read up to the image is the same for any prompt."""
        starts = [self._up_to_image(self._ids(image, prompt)) for prompt in PROBES]
        return bool(starts[0]) and starts[0] == starts[1]

    # What a row is made of.

    def _inputs(self, image: Image, prompt: str) -> dict[str, Any]:
        """Return what the model reads of an image and a prompt, on the device: tensors of one row."""
        import torch

        prepared = self._prompts.inputs(image, prompt)
        dtype = self._model.dtype
        return {
            name: value.to(self.device, dtype if value.is_floating_point() else None)
            for name, value in prepared.items()
            # A processor of a model that is also trained gives labels too.
            if isinstance(value, torch.Tensor) and name != "labels"
        }

    def _ids(self, image: Image, prompt: str) -> list[int]:
        """Return the tokens of one row, those of the image among them."""
        return [int(token) for token in self._prompts.inputs(image, prompt)["input_ids"][0]]

    def _up_to_image(self, ids: Sequence[int]) -> list[int]:
        """Return the tokens up to the last one of the image; none where there is none."""
        token = getattr(self._model.config, "image_token_id", None)
        last = max((place for place, each in enumerate(ids) if each == token), default=-1)
        return list(ids[: last + 1])

    # Reading.

    def _look(self, paths: Mapping[str, Path | None]) -> list[Shown]:
        return [self._shown(recorded_image(path, image_id)) for image_id, path in paths.items()]

    def _shown(self, image: Image) -> Shown:
        if not self.shares:
            return Shown(image, [], None)
        import torch

        from plumbline.generators.sampling import Read, new_cache

        inputs = self._inputs(image, PROBES[0])
        ids = self._up_to_image(inputs["input_ids"][0].tolist())
        whole = inputs["input_ids"].shape
        # What is said of every token is cut where the image ends; the rest is of the image.
        inputs = {name: value[:, : len(ids)] if value.shape == whole else value for name, value in inputs.items()}
        cache = new_cache(self._model.config)
        output = self._model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        mask = torch.ones((1, len(ids)), dtype=torch.long, device=self.device)
        shift = getattr(self._model.base_model, "rope_deltas", None)
        shift = torch.zeros_like(mask[:, 0]) if shift is None else shift.reshape(1).to(mask)
        return Shown(image, ids, Read(cache, mask, output.logits[:, -1], shift))

    def _read(self, seen: Sequence[Shown], pairs: Sequence[tuple[int, str]]) -> Read:
        from plumbline.generators.sampling import read_on

        before, tails = [], []
        for place, prompt in pairs:
            shown = seen[place]
            assert shown.read is not None
            ids = self._ids(shown.image, prompt)
            if self._up_to_image(ids) != shown.ids:
                raise misplaced(prompt, "tokens of the image in the prompt itself")
            before.append(shown.read)
            tails.append(ids[len(shown.ids) :])
        return read_on(self._model, before, tails)

    def _cached(self, seen: Seen, row: Asked) -> tuple[int, int]:
        if self.shares:
            return super()._cached(seen, row)
        from transformers import GenerationConfig

        from plumbline.generators.sampling import cache_bytes

        place, prompt = seen.pair(row)
        inputs = self._inputs(seen.state[place].image, prompt)
        settings = GenerationConfig(max_new_tokens=1, pad_token_id=self._stops[0], return_dict_in_generate=True)
        written = self._model.generate(**inputs, generation_config=settings)
        return cache_bytes(written.past_key_values), inputs["input_ids"].shape[1]

    def _batch(self, asked: Sequence[Asked], seen: Seen, decoding: Decoding) -> list[Answer]:
        if self.shares:
            return super()._batch(asked, seen, decoding)
        answers = []
        for (place, prompt), rows in groupby(asked, key=seen.pair):
            answers += self._together(seen.state[place].image, prompt, list(rows), decoding)
        return answers

    def _together(self, image: Image, prompt: str, rows: Sequence[Asked], decoding: Decoding) -> list[Answer]:
        """Let transformers' `generate` read image and prompt, and write the answers of all seeds."""
        from transformers import GenerationConfig, LogitsProcessorList

        from plumbline.generators.sampling import OwnDraws, RowSeeded, until_stop

        with self._inference():
            inputs = self._inputs(image, prompt)
            length = inputs["input_ids"].shape[1]
            self._require_context(prompt, length, decoding)
            draws = OwnDraws(RowSeeded([row.key for row in rows], decoding, self.device), length)
            # Each row's own token is all that is left to draw: what else could change a distribution is set to nothing.
            settings = GenerationConfig(
                do_sample=True, num_return_sequences=len(rows), max_new_tokens=decoding.max_new_tokens, top_k=0,
                eos_token_id=list(self._stops), pad_token_id=self._stops[0],
            )  # fmt: skip
            self._model.generation_config = settings
            written = self._model.generate(
                **inputs, generation_config=settings, logits_processor=LogitsProcessorList([draws])
            )
        return [self._answer(until_stop(row[length:].tolist(), self._stops), length) for row in written]
