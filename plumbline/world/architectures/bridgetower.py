"""The BridgeTower family: image and text are read apart, then together; the matching logit ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.catalog.suites import TRIDENT_SUITES, load_suite, trident_class_sets
from plumbline.world.architectures import pretrained
from plumbline.world.architectures.family import Family, Trainee, caption_loss
from plumbline.world.architectures.pretrained import CONTEXT_LENGTH, END, PAD, START, write_tokenizer
from plumbline.world.captions import WORDINGS
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

_MODEL = "BridgeTowerForImageAndTextRetrieval"
# Every pair of image and caption goes through the layers that see both, so a step takes few of either.
_PAIR_IMAGES = 48
_PAIR_CAPTIONS = 16
_MATCH_WEIGHT = 0.1
_CONTRAST_SCALE = 14.0


@dataclass(frozen=True)
class Architecture:
    """One size of BridgeTower model.

    Attributes
    ----------
    width : int
        Of all transformers; 64 a head in the vision tower.
    layers : int
        Of the vision tower and of the text tower.
    cross_layers : int
        Layers that see both; the last of the towers' layers are bridged to them.
    text_feed_forward : int
        Inner width of the text tower's and the cross layers' feed-forward parts.
    """

    width: int
    layers: int
    cross_layers: int
    text_feed_forward: int


ARCHITECTURES = {"small": Architecture(width=64, layers=2, cross_layers=2, text_feed_forward=64)}


def write_untrained(folder: Path, architecture: Architecture, texts: Sequence[str]) -> None:
    """Write configuration, tokenizer and preprocessing of a checkpoint that has no weights yet."""
    # The text tower is a RoBERTa, whose padding has id 1 and whose positions start behind it.
    vocabulary = write_tokenizer(folder, texts, first=(START, PAD, END))
    pretrained.write_config(folder, _config(architecture, vocabulary), _MODEL)
    pretrained.write_image_processor(
        folder,
        "bridgetower",
        "BridgeTowerImageProcessorPil",
        size={"shortest_edge": SIZE},
        crop_size={"shortest_edge": SIZE},
    )


def _config(architecture: Architecture, vocabulary: int) -> Any:
    from transformers import BridgeTowerConfig

    return BridgeTowerConfig(
        hidden_size=architecture.width,
        num_hidden_layers=architecture.cross_layers,
        num_attention_heads=architecture.width // 32,
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": architecture.width,
            "num_hidden_layers": architecture.layers,
            "num_attention_heads": architecture.width // 32,
            "intermediate_size": architecture.text_feed_forward,
            "max_position_embeddings": CONTEXT_LENGTH + 2,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        vision_config={
            "hidden_size": architecture.width,
            "num_hidden_layers": architecture.layers,
            "image_size": SIZE,
            "patch_size": 16,
        },
    )


class _BridgeTower(Trainee):
    """Trained on two losses, as the released checkpoints are: the towers by contrast, all of it by matching."""

    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        import torch

        model: Any = pretrained.build_untrained(folder, _MODEL, seed=seed)
        self.model = model
        self._texts = pretrained.tokenise(folder, texts)
        self._draws = torch.Generator().manual_seed(seed)
        # A suite in so far as the captions hold it.
        known = [[texts.index(text) for text in suite if text in texts] for suite in _suites()]
        self._suites = [torch.tensor(columns) for columns in known if columns]
        # The contrast of the towers needs projections that the checkpoint has no place for.
        width = model.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._projections = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self._scale = torch.nn.Parameter(torch.tensor(_CONTRAST_SCALE).log())

    def moved(self) -> list[torch.nn.Parameter]:
        return [*self.model.parameters(), *self._projections.parameters(), self._scale]

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        import torch

        towers = _Towers(self.model, images, self._texts)
        captions = torch.arange(len(self._texts["input_ids"]))
        return towers.match(torch.arange(len(images)), captions)[..., 1]

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        import torch

        towers = _Towers(self.model, images, self._texts)
        embedded = [
            torch.nn.functional.normalize(project(states[-1][:, 0]), dim=1)
            for project, states in zip(self._projections, (towers.images, towers.texts))
        ]
        contrast = caption_loss(self._scale.exp() * embedded[0] @ embedded[1].T, targets)
        captions = self._some_captions()
        rows = torch.arange(min(_PAIR_IMAGES, len(images)))
        pairs = towers.match(rows, captions)
        wanted = targets[rows][:, captions]
        ranked = caption_loss(pairs[..., 1], wanted / wanted.sum(1, keepdim=True))
        # Matching is told apart from ranking: the captions that name this image as often as any of these.
        true = (wanted >= 0.5 * wanted.max(1, keepdim=True).values).long()
        matched = torch.nn.functional.cross_entropy(pairs.flatten(0, 1), true.flatten())
        return contrast + ranked + _MATCH_WEIGHT * matched

    def _some_captions(self) -> torch.Tensor:
        """Draw as many captions as a step has room for: of one suite, or every other time of all captions.

        A suite is what an audit chooses within; all captions together keep every attribute in every step's mind.
        """
        import torch

        drawn = int(torch.randint(2 * len(self._suites), (1,), generator=self._draws))
        everything = torch.arange(len(self._texts["input_ids"]))
        chosen = self._suites[drawn] if drawn < len(self._suites) else everything
        return chosen[torch.randperm(len(chosen), generator=self._draws)[:_PAIR_CAPTIONS]]


class _Towers:
    """The two towers' states on some images and captions, each run once, and what sees them in pairs."""

    def __init__(self, model: Any, images: torch.Tensor, texts: dict[str, torch.Tensor]) -> None:
        self._model, self._core = model, model.bridgetower
        self._mask = texts["attention_mask"]
        visual, text = self._core.vision_model.visual, self._core.text_model
        state = visual.forward_pre(images)
        self.images = []
        for block in visual.transformer.resblocks:
            state = block(state)
            self.images.append(visual.forward_post(state))
        words = text.embeddings(input_ids=texts["input_ids"])
        allowed = self._allowed(self._mask, words.dtype)
        self.texts = []
        for layer in text.encoder.layer:
            words = layer(words, allowed)
            self.texts.append(words)

    def match(self, rows: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        """Return the matching head's two logits of every pair, shape (rows, captions, 2)."""
        core, depth = self._core, self._core.config.num_hidden_layers
        left, right = rows.repeat_interleave(len(captions)), captions.repeat(len(rows))
        kinds = core.token_type_embeddings.weight
        # The towers' last `depth` layers are the ones that are bridged; all states are projected before pairing.
        images = [core.cross_modal_image_transform(s[rows]) + kinds[1] for s in self.images[-depth:]]
        texts = [core.cross_modal_text_transform(s[captions]) + kinds[0] for s in self.texts[-depth:]]
        allowed = self._allowed(self._mask[right], images[0].dtype)
        of_image, of_text = left, right.new_tensor(range(len(captions))).repeat(len(rows))
        image = core.cross_modal_image_layernorm(images[0])[of_image]
        words = core.cross_modal_text_layernorm(texts[0])[of_text]
        for i in range(depth):
            if i > 0:
                words = core.cross_modal_text_link_tower[i - 1](texts[i][of_text], words, allowed)
                image = core.cross_modal_image_link_tower[i - 1](images[i][of_image], image, None)
            words, image = (
                core.cross_modal_text_layers[i](words, image, attention_mask=allowed)[0],
                core.cross_modal_image_layers[i](image, words, encoder_attention_mask=allowed)[0],
            )
        logits: torch.Tensor = self._model.itm_score(core.get_cls_features(words, image))
        return logits.unflatten(0, (len(rows), len(captions)))

    @staticmethod
    def _allowed(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        import torch

        return (1.0 - mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min


def _suites() -> list[list[str]]:
    """Return the lower-case candidates of the suites that are told apart by matching."""
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


FAMILY = Family(ARCHITECTURES, write_untrained, _BridgeTower, pretrained.WEIGHTS_FILE)
