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
from plumbline.errors import CheckpointError, GenerationError
from plumbline.generators.backend import Answer, Asked, Decoding
from plumbline.generators.families import SHARES
from plumbline.generators.folders import QFORMER_TOKENIZER, GeneratorFiles
from plumbline.generators.loaded_model import load_tokenizer
from plumbline.generators.prompt_format import IMAGE, PROBES, misplaced
from plumbline.generators.transformers_backend import Seen, TransformersBackend, recorded_image

if TYPE_CHECKING:
    import torch
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
        self._require_context(PROBES[0], len(ids))
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
            self._require_context(prompt, len(ids))
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
        self._require_context(prompt, inputs["input_ids"].shape[1])
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
            self._require_context(prompt, length, decoding.max_new_tokens)
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


# --- LLaVA as transformers has it: LLaVA-1.5, BakLLaVA, LLaVA-Gemma.


class LlavaBackend(ImageTextBackend):
    """Reads the image, and what its format puts before it, once for all prompts.

    Its formats are older than chat templates and processors that put in the tokens of an image; else it is an
    ImageTextBackend.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, its tokenizer has another image token than its model, or its chat template puts
        the prompt before the image.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        if not self.shares:
            raise CheckpointError(
                "the chat template of this checkpoint puts the prompt before the image",
                where=files.folder,
                found=self._prompts.render(PROBES[0]),
                expected="the image first, as LLaVA was trained",
            )

    def _may_share(self, files: GeneratorFiles) -> bool:
        self._image_token = _image_token(files, self._model, self._tokenizer)
        self._image_tokens = self._count_image_tokens()
        return True

    def _inputs(self, image: Image, prompt: str) -> dict[str, Any]:
        import torch

        ids = torch.tensor([self._ids(image, prompt)], device=self.device)
        return {"input_ids": ids, "pixel_values": self._prepared(image)}

    def _ids(self, image: Image, prompt: str) -> list[int]:
        head, tail = self._prompts.around_image(prompt, self._image_token)
        return head + [self._image_token] * self._image_tokens + tail

    def _prepared(self, image: Image) -> torch.Tensor:
        """Return (1, 3, h, w) pixels on the device, as the checkpoint's own preprocessing gives them."""
        prepared = self._images.prepare(image)[None]
        return self._images.normalisation(prepared, device=self.device).to(self._model.dtype)

    def _count_image_tokens(self) -> int:
        """Return how many tokens an image is, as the model itself makes them of a grey picture."""
        import torch
        from PIL import Image

        with torch.inference_mode():
            pixels = self._prepared(Image.new("RGB", (640, 480), (127, 127, 127)))
            return len(self._model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output[0])


def _image_token(files: GeneratorFiles, model: Any, tokenizer: Any) -> int:
    token = tokenizer.convert_tokens_to_ids(IMAGE)
    if token is None or token == tokenizer.unk_token_id or token != model.config.image_token_id:
        raise CheckpointError(
            "the tokenizer of this checkpoint has another image token than its model",
            where=files.folder,
            found=f"{IMAGE} is {token}",
            expected=f"image_token_index: {model.config.image_token_id}",
        )
    return int(token)


class InstructBlipBackend(TransformersBackend):
    """Reads the image once for all prompts, and the prompt with it by its Q-Former (InstructBLIP with Vicuna inside).

    Runs the vision tower once for all prompts of an image, and the Q-Former once for all seeds of a prompt.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self._qformer_tokenizer = load_tokenizer(files, QFORMER_TOKENIZER)

    @property
    def _language_model(self) -> Any:
        return self._model.language_model

    def _look(self, paths: Mapping[str, Path | None]) -> torch.Tensor:
        """Return the (images, patches, d) output of the vision tower."""
        seen = self._model.vision_model(pixel_values=self._pixels(paths), return_dict=True)
        output: torch.Tensor = seen.last_hidden_state
        return output

    def _read(self, seen: torch.Tensor, pairs: Sequence[tuple[int, str]]) -> Read:
        import torch

        from plumbline.generators.sampling import read_prompts

        for _, text in pairs:
            self._require_qformer(text)
        # The queries come first, before the start token of the prompt.
        queries = self._queries(seen, pairs)
        tokens = [self._prompts.tokens(text) for _, text in pairs]
        for (_, text), each in zip(pairs, tokens):
            self._require_context(text, len(each))
        prompts = [self._embedded(each) for each in tokens]
        shown = [torch.cat([query.to(prompt.dtype), prompt]) for query, prompt in zip(queries, prompts)]
        return read_prompts(self._language_model, shown)

    def _queries(self, seen: torch.Tensor, pairs: Sequence[tuple[int, str]]) -> torch.Tensor:
        """Return (pairs, queries, d): what the Q-Former finds in each image for each prompt, for the language model."""
        import torch

        model = self._model
        read = self._qformer_tokenizer(
            [text for _, text in pairs], padding=True, padding_side="right", return_tensors="pt"
        ).to(self.device)
        images = seen[torch.tensor([image for image, _ in pairs], device=self.device)]
        queries = model.query_tokens.expand(len(pairs), -1, -1)
        mask = torch.cat([read["attention_mask"].new_ones(queries.shape[:2]), read["attention_mask"]], dim=1)
        states = model.qformer(
            input_ids=read["input_ids"],
            attention_mask=mask,
            query_embeds=queries,
            encoder_hidden_states=images,
            encoder_attention_mask=mask.new_ones(images.shape[:2]),
            return_dict=True,
        ).last_hidden_state[:, : queries.shape[1]]
        projected: torch.Tensor = model.language_projection(states)
        return projected

    def _require_qformer(self, prompt: str) -> None:
        """Refuse a prompt that is longer than the Q-Former takes."""
        read = len(self._qformer_tokenizer(prompt)["input_ids"])
        longest = self._model.config.qformer_config.max_position_embeddings
        if read > longest:
            raise GenerationError(
                "a prompt is longer than the Q-Former takes",
                where=prompt[:200],
                found=f"{read} tokens",
                expected=f"at most {longest}",
            )
