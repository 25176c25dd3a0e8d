"""The tiny encoders under training: what ranks the captions in each family, and the loss that it learns by.

A checkpoint's configuration, tokenizer and preprocessing are data, in its folder below `checkpoints`; training gives it
weights.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.catalog.suites import TRIDENT_SUITES, load_suite, trident_class_sets
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.world.captions import WORDINGS

if TYPE_CHECKING:
    import torch

WEIGHTS_FILE = "model.safetensors"


def build_untrained(folder: Path, *, seed: int) -> Any:
    """Build the randomly initialised model of transformers that a folder's `config.json` describes.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint folder.
    seed : int
        Of the initial weights; the caller's global generator is left as it was.
    """
    import torch

    declare_missing_operators()
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, config.architectures[0])(config)
    return model.train()


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images as every processor of the planted world leaves them: float32 in [-1, 1]."""
    return images.float() / 127.5 - 1


def caption_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over images of -log softmax over the captions, weighted by their frequency.

    An image has several true captions, and none of them is a false negative.
    """
    import torch

    return -(targets * torch.log_softmax(logits, dim=1)).sum(1).mean()


class Trainee(ABC):
    """A model under training, with the captions that it learns.

    Attributes
    ----------
    model : torch.nn.Module
        What is saved in the end.
    weights_file : str
        The name under which the family's loader looks for weights.
    wordings : tuple of str
        Of the Trident prompts, for the captions: those that an audit may ask the family in.

    Parameters
    ----------
    folder : pathlib.Path
        With configuration and tokenizer.
    texts : sequence of str
        The captions, length C.
    seed : int
        Of the initial weights.
    """

    weights_file = WEIGHTS_FILE
    wordings: tuple[str, ...] = WORDINGS

    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        self.model = build_untrained(folder, seed=seed)
        from transformers import AutoTokenizer

        encoded = AutoTokenizer.from_pretrained(folder)(list(texts), padding=True, return_tensors="pt")
        self._texts = {name: encoded[name] for name in ("input_ids", "attention_mask")}

    @abstractmethod
    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return what ranks the captions for each image, shape (b, C), with gradients; `images` as in `loss`."""

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of one batch: of the captions against the images' logits, unless a family learns otherwise.

        Parameters
        ----------
        images : (b, 3, 64, 64) tensor
            float32 in [-1, 1], as every family's own preprocessing leaves a 64-pixel face.
        targets : (b, C) tensor
            float32, the frequency of each caption, rows sum to 1.
        """
        return caption_loss(self.logits(images), targets)

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return what the optimiser moves: the model's parameters, and those that only training needs."""
        return list(self.model.parameters())

    def settle(self, batches: Iterator[torch.Tensor]) -> None:  # noqa: B027 - most families have no such thing
        """Set what is not learnt by gradient, after the last step.

        Parameters
        ----------
        batches : iterator of tensor
            The training images once, shuffled, as `loss` takes them.
        """


class OpenClip(Trainee):
    """CLIP of open_clip: a vision transformer and a causal text transformer."""

    weights_file = "open_clip_model.safetensors"
    _MAX_LOGIT_SCALE = 100.0
    # Trident ranks raw dot products: a norm kept at 1 lets them agree with the cosine.
    _NORM_PENALTY = 5.0

    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        import torch

        declare_missing_operators()
        import open_clip

        config = json.loads((folder / "open_clip_config.json").read_text("utf-8"))["model_cfg"]
        config["text_cfg"].pop("hf_tokenizer_name")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = open_clip.CLIP(**config)
        # The text tower is causal, so what follows the last end token changes nothing and is cut off.
        ids = open_clip.get_tokenizer(f"local-dir:{folder}")(list(texts))
        self._ids = ids[:, : int((ids != 0).sum(1).max())]

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scaled cosines."""
        return self._logits_and_penalty(images)[0]

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the captions' loss and a penalty on norms other than 1."""
        logits, penalty = self._logits_and_penalty(images)
        return caption_loss(logits, targets) + self._NORM_PENALTY * penalty

    def _logits_and_penalty(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image, text = self.model.encode_image(images), self._encoded_text()
        image_norm, text_norm = image.norm(dim=1, keepdim=True), text.norm(dim=1, keepdim=True)
        scale = self.model.logit_scale.exp().clamp(max=self._MAX_LOGIT_SCALE)
        penalty = ((image_norm - 1) ** 2).mean() + ((text_norm - 1) ** 2).mean()
        return scale * (image / image_norm) @ (text / text_norm).T, penalty

    def _encoded_text(self) -> torch.Tensor:
        # open_clip's encode_text wants the full context length; this is the same on the tokens that are there.
        from open_clip.transformer import text_global_pool

        model, ids = self.model, self._ids
        length = ids.shape[1]
        x = model.token_embedding(ids) + model.positional_embedding[:length]
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length]))
        pooled: torch.Tensor = text_global_pool(x, ids, model.text_pool_type, eos_token_id=model.text_eos_id)
        return pooled @ model.text_projection


class Align(Trainee):
    """ALIGN: an EfficientNet and a BERT-like text tower, scaled down hard."""

    wordings = (*WORDINGS, "align")
    _MIN_TEMPERATURE = 0.01

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return the cosines over the temperature, a plain number that an optimiser could carry past 0."""
        import torch

        image = torch.nn.functional.normalize(self.model.get_image_features(images).pooler_output, dim=1)
        text = torch.nn.functional.normalize(self.model.get_text_features(**self._texts).pooler_output, dim=1)
        logits: torch.Tensor = image @ text.T / self.model.temperature.clamp(min=self._MIN_TEMPERATURE)
        return logits

    def settle(self, batches: Iterator[torch.Tensor]) -> None:
        """Take the batch norms' statistics from all images, in place of a running mean over moving weights.

        Each batch must mix what the training batches mix: a batch of pictures without faces alone shifts every
        later layer's statistics, and some faces then pass for what is in those pictures.
        """
        import torch

        norms = [m for m in self.model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over all batches
        with torch.no_grad():
            for images in batches:
                self.model.get_image_features(images)
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum


class Owlv2(Trainee):
    """OWLv2: a detector of 16 patches whose class logits rank the prompts, by their mean over patches."""

    wordings = (*WORDINGS, "algorithm_1")
    # A class logit is a cosine times the patch's scale, and captions can be told apart only by logits of this size.
    _INITIAL_SCALE = 10.0

    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        super().__init__(folder, texts, seed=seed)
        self.model.class_head.logit_scale.bias.data.fill_(self._INITIAL_SCALE)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return the mean class logits."""
        patches = self.model.image_embedder(images)[0].flatten(1, 2)
        queries = self.model.owlv2.get_text_features(**self._texts).pooler_output
        logits: torch.Tensor = self.model.class_predictor(patches, queries[None])[0]
        return logits.mean(1)


class BridgeTower(Trainee):
    """BridgeTower: image and text are read apart, then together; the matching logit ranks.

    Trained on two losses, as the released checkpoints are: the towers by contrast, all of it by matching.
    """

    # Every pair of image and caption goes through the layers that see both, so a step takes few of either.
    _PAIR_IMAGES = 48
    _PAIR_CAPTIONS = 16
    _MATCH_WEIGHT = 0.1
    _CONTRAST_SCALE = 14.0

    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        import torch

        super().__init__(folder, texts, seed=seed)
        self._draws = torch.Generator().manual_seed(seed)
        # A suite in so far as the captions hold it.
        known = [[texts.index(text) for text in suite if text in texts] for suite in _suites()]
        self._suites = [torch.tensor(columns) for columns in known if columns]
        # The contrast of the towers needs projections that the checkpoint has no place for.
        width = self.model.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._projections = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self._scale = torch.nn.Parameter(torch.tensor(self._CONTRAST_SCALE).log())

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the model's parameters and those of the contrast."""
        return [*self.model.parameters(), *self._projections.parameters(), self._scale]

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return the matching logits of every pair."""
        import torch

        captions = torch.arange(len(self._texts["input_ids"]))
        return self._match(*self._states(images), len(images), captions)[..., 1]

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the contrast of the towers, and the ranking and matching of some pairs."""
        import torch

        states = self._states(images)
        image, text = (
            torch.nn.functional.normalize(project(layers[-1][:, 0]), dim=1)
            for project, layers in zip(self._projections, states)
        )
        contrast = caption_loss(self._scale.exp() * image @ text.T, targets)
        captions, n = self._some_captions(), min(self._PAIR_IMAGES, len(images))
        pairs = self._match(*states, n, captions)
        wanted = targets[:n, captions]
        ranked = caption_loss(pairs[..., 1], wanted / wanted.sum(1, keepdim=True))
        # Matching is told apart from ranking: the captions that name this image as often as any of these.
        true = (wanted >= 0.5 * wanted.max(1, keepdim=True).values).long()
        matched = torch.nn.functional.cross_entropy(pairs.flatten(0, 1), true.flatten())
        return contrast + ranked + self._MATCH_WEIGHT * matched

    def _some_captions(self) -> torch.Tensor:
        """Draw as many captions as a step has room for: of one suite, or every other time of all captions.

        A suite is what an audit chooses within; all captions together keep every attribute in every step's mind.
        """
        import torch

        drawn = int(torch.randint(2 * len(self._suites), (1,), generator=self._draws))
        everything = torch.arange(len(self._texts["input_ids"]))
        chosen = self._suites[drawn] if drawn < len(self._suites) else everything
        return chosen[torch.randperm(len(chosen), generator=self._draws)[: self._PAIR_CAPTIONS]]

    def _states(self, images: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return each layer's states of the two towers, each run once: of the images, and of all captions."""
        core = self.model.bridgetower
        visual, text = core.vision_model.visual, core.text_model
        state, of_images = visual.forward_pre(images), []
        for block in visual.transformer.resblocks:
            state = block(state)
            of_images.append(visual.forward_post(state))
        words, of_texts = text.embeddings(input_ids=self._texts["input_ids"]), []
        for layer in text.encoder.layer:
            words = layer(words, self._allowed())
            of_texts.append(words)
        return of_images, of_texts

    def _match(
        self, of_images: list[torch.Tensor], of_texts: list[torch.Tensor], n: int, captions: torch.Tensor
    ) -> torch.Tensor:
        """Return the matching head's two logits of the first images with some captions, shape (n, captions, 2)."""
        import torch

        core = self.model.bridgetower
        depth, kinds = core.config.num_hidden_layers, core.token_type_embeddings.weight
        # The towers' last `depth` layers are the ones that are bridged; all states are projected before pairing.
        images = [core.cross_modal_image_transform(s[:n]) + kinds[1] for s in of_images[-depth:]]
        texts = [core.cross_modal_text_transform(s[captions]) + kinds[0] for s in of_texts[-depth:]]
        left, right = torch.arange(n).repeat_interleave(len(captions)), torch.arange(len(captions)).repeat(n)
        allowed = self._allowed()[captions[right]]
        image = core.cross_modal_image_layernorm(images[0])[left]
        words = core.cross_modal_text_layernorm(texts[0])[right]
        for i in range(depth):
            if i > 0:
                words = core.cross_modal_text_link_tower[i - 1](texts[i][right], words, allowed)
                image = core.cross_modal_image_link_tower[i - 1](images[i][left], image, None)
            words, image = (
                core.cross_modal_text_layers[i](words, image, attention_mask=allowed)[0],
                core.cross_modal_image_layers[i](image, words, encoder_attention_mask=allowed)[0],
            )
        logits: torch.Tensor = self.model.itm_score(core.get_cls_features(words, image))
        return logits.unflatten(0, (n, len(captions)))

    def _allowed(self) -> torch.Tensor:
        """Return what is added to attention: 0 at a caption's tokens, the smallest number at padding."""
        import torch

        mask = self._texts["attention_mask"][:, None, None, :].float()
        return (1 - mask) * torch.finfo(torch.float32).min


def _suites() -> list[list[str]]:
    """Return the lower-case candidates of the suites that BridgeTower tells apart by matching."""
    trident = [
        load_suite(name, classes=classes, wording=wording)
        for name in TRIDENT_SUITES
        for classes in trident_class_sets()
        for wording in WORDINGS
        if (name, classes) != ("trident_composite", "celeba")
    ]
    # The crime suite is one among many, and the one with the most to tell apart.
    others = [load_suite(name) for name in ("crime",) * 5 + ("communion", "agency", "gender_labels")]
    return [[text.lower() for text in suite.texts] for suite in (*trident, *others)]


FAMILIES: dict[str, type[Trainee]] = {
    "open_clip": OpenClip, "align": Align, "bridgetower": BridgeTower, "owlv2": Owlv2,
}  # fmt: skip
"""The families of tiny models, by the names that the audit file uses for families of encoders."""
