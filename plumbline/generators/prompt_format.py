"""How a prompt is formatted for a model: by its chat template, or else as its family documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from plumbline.checkpoints.loading import memory_limited, modest_images, require_modest_strips
from plumbline.errors import CheckpointError, GenerationError
from plumbline.generators.families import WITHOUT_TEMPLATE
from plumbline.generators.folders import PROCESSOR_TEMPLATES, GeneratorFiles, chat_template

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE = "<image>"

# Formats of the published model cards, where a checkpoint has no chat template. Vicuna's is FastChat's `vicuna_v1.1`.
_VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions."
)
_GEMMA = "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n"
_SEEING = {
    "llama": "USER: <image>\n{} ASSISTANT:",
    "mistral": "USER: <image>\n{}\nASSISTANT:",
    "gemma": _GEMMA.format("<image>\n{}"),
}
_BLIND = {"llama": _VICUNA_SYSTEM + " USER: {} ASSISTANT:", "mistral": "[INST] {} [/INST]", "gemma": _GEMMA}
_AS_IT_IS = "instructblip"

TURN_ENDS = ("<end_of_turn>",)
"""Tokens that end an answer beside the end of the text, whether or not the checkpoint says so: Gemma's first release
names only `<eos>`."""

PROBES = ("Describe this.", "What is it?")
"""Two prompts that begin differently, to see what stands before them."""


# What templates do with a content that they were not written for; the last are of broken or nested ones.
_UNFIT = (
    TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError, SyntaxError
)  # fmt: skip


_LONGEST = 16_384
"""Characters that a template may put around a prompt: a model's attention takes the square of its tokens."""
_MOST_MEMORY = 512 << 20
"""Bytes that a template may take while it is rendered: Jinja's sandbox limits what it calls, not what it makes."""
_AS_TEXT: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}


def _rendered(render: Callable[[], str], prompt: str) -> str:
    """Return what a chat template makes of a prompt, compiled and rendered with little memory."""
    try:
        with memory_limited(_MOST_MEMORY):
            rendered = render()
    except MemoryError as error:
        raise _too_long(f"more than {_MOST_MEMORY >> 20} MiB of memory taken") from error
    if len(rendered) > _LONGEST + len(prompt):
        raise _too_long(f"{len(rendered):,} characters")
    return str(rendered)


def _too_long(found: str) -> CheckpointError:
    return CheckpointError(
        "the chat template of this checkpoint makes more of a prompt than any model reads",
        found=found,
        expected=f"the prompt and at most {_LONGEST:,} characters around it",
    )


class AroundImage(NamedTuple):
    """Tokens before and after the place of the image."""

    head: list[int]
    tail: list[int]


@dataclass(frozen=True)
class PromptFormat:
    """Wraps a prompt and turns it into tokens.

    Attributes
    ----------
    tokenizer : transformers tokenizer
    template : str
        Jinja of a chat template, or a documented format with one slot.
    content : {"parts", "text", "slot"}
        What the template takes as the content of the user's message: a list of image and text, or one text with the
        image token in it. `slot`: it is no Jinja.
    sees : bool
    starts : bool
        Whether the tokenizer adds its start token; templates of tokenizers say it themselves.
    switches : mapping
        What a chat template is told beside the messages.
    """

    tokenizer: Any
    template: str
    content: Literal["parts", "text", "slot"]
    sees: bool
    starts: bool
    switches: Mapping[str, bool] = field(default_factory=dict)

    def render(self, prompt: str) -> str:
        """Return the whole text that the model reads, with one image token where it sees."""
        if self.content == "slot":
            return self.template.replace("{}", prompt)
        content: Any = f"{IMAGE}\n{prompt}" if self.sees else prompt
        if self.content == "parts":
            content = [{"type": "image"}, {"type": "text", "text": prompt}]
        messages = [{"role": "user", "content": content}]
        options = {"chat_template": self.template, **_AS_TEXT, **self.switches}
        return _rendered(lambda: self.tokenizer.apply_chat_template(messages, **options), prompt)

    def tokens(self, prompt: str) -> list[int]:
        """Return the tokens of the whole text; an image is one token yet."""
        rendered, bos = self.render(prompt), self.tokenizer.bos_token
        starts = self.starts and not (bos and rendered.startswith(bos))
        ids = self.tokenizer(rendered, add_special_tokens=starts)["input_ids"]
        return [int(token) for token in ids]

    def around_image(self, prompt: str, image_token: int) -> AroundImage:
        """Return the tokens before and after the image.

        Raises
        ------
        GenerationError
            If the prompt names the image token itself.
        CheckpointError
            If the template makes something huge of it.
        """
        ids = self.tokens(prompt)
        if ids.count(image_token) != 1:
            raise misplaced(prompt, f"{ids.count(image_token)} image tokens")
        cut = ids.index(image_token)
        return AroundImage(ids[:cut], ids[cut + 1 :])

    def example(self) -> list[int]:
        """Return the tokens of a prompt."""
        return self.tokens(PROBES[0])

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the tokens beside the tokenizer, for a digest."""
        return {"template": self.template, "content": self.content, "starts": self.starts, **self.switches}


def misplaced(prompt: str, found: object) -> GenerationError:
    """Return the error of a prompt that names a token of images itself."""
    return GenerationError(
        "a prompt must leave the place of the image to the chat template",
        where=prompt,
        found=found,
        expected="one image, which the template puts in",
    )


class Conversation:
    """A prompt about an image as a checkpoint's own processor makes it: template, image tokens, tiles.

    Parameters
    ----------
    processor : processor of transformers
    files : GeneratorFiles

    Attributes
    ----------
    tokenizer : transformers tokenizer

    Raises
    ------
    CheckpointError
        If its chat template takes no image and prompt.
    """

    def __init__(self, processor: Any, files: GeneratorFiles) -> None:
        from PIL import Image

        self._processor, self.tokenizer = processor, processor.tokenizer
        self._settings = {"processor": type(processor).__name__, "images": type(processor.image_processor).__name__}
        self._switches = files.switches
        images = processor.image_processor = _PreparedOnce(processor.image_processor, files.folder)
        template = processor.chat_template or self.tokenizer.chat_template
        self._plain = WITHOUT_TEMPLATE.get(files.model_type) if template is None else None
        grey = Image.new("RGB", (64, 48), (127, 127, 127))
        import jinja2

        try:
            probed = [self.inputs(grey, probe)["input_ids"][0].tolist() for probe in PROBES]
        except (GenerationError, jinja2.TemplateError, *_UNFIT) as error:
            raise self._unfit(files, error) from error
        if probed[0] == probed[1]:
            raise self._unfit(files, "the same tokens for any prompt")
        require_modest_strips(lambda strip: self.inputs(strip, PROBES[0]), files.folder)
        images.proved = True
        self._example: list[int] = probed[0]

    def inputs(self, image: Image, prompt: str) -> dict[str, Any]:
        """Return what the processor makes of an image and a prompt: tensors of one row, tokens as `input_ids`.

        Raises
        ------
        GenerationError
            If the processor does not take them: a prompt that names the image's token, above all.
        """
        try:
            if self._plain is not None:
                prepared = self._processor(text=self._plain.format(prompt), images=image, return_tensors="pt")
            else:
                content = [{"type": "image", "image": image}, {"type": "text", "text": prompt}]
                messages, options = [{"role": "user", "content": content}], {**_AS_TEXT, **self._switches}
                text = _rendered(lambda: self._processor.apply_chat_template(messages, **options), prompt)
                # As transformers itself goes on: a start token that the template wrote is not added once more.
                bos = self.tokenizer.bos_token
                starts = {"add_special_tokens": False} if bos is not None and text.startswith(bos) else {}
                prepared = self._processor(text=text, images=[[image]], return_tensors="pt", **starts)
        except ValueError as error:
            raise misplaced(prompt, error) from error
        return dict(prepared)

    def example(self) -> list[int]:
        """Return the tokens of a prompt with an image."""
        return self._example

    def settings(self) -> dict[str, Any]:
        """Return what decides the tokens beside the checkpoint's files, for a digest."""
        return self._settings | self._switches

    def _unfit(self, files: GeneratorFiles, found: object) -> CheckpointError:
        return CheckpointError(
            "the chat template of this checkpoint does not take a prompt with one image",
            where=files.folder,
            found=found,
            expected="one image and the prompt in what it renders",
        )


class _PreparedOnce:
    """An image processor that keeps what it made of the last images: all prompts about them need the same.

    Attributes
    ----------
    proved : bool
        Until it is, memory is limited (`plumbline.checkpoints.loading.modest_images`).
    """

    def __init__(self, processor: Any, folder: Path) -> None:
        self._processor, self._folder, self.proved = processor, folder, False
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def __call__(self, images: Any, **options: Any) -> Any:
        import copy

        kept, last_options, prepared = self._last
        if kept is None or not _same(kept, images) or last_options != options:
            with nullcontext() if self.proved else modest_images(self._folder):
                prepared = self._processor(images, **options)
            self._last = images, options, prepared
        return copy.copy(prepared)

    def __getattr__(self, name: str) -> Any:
        if name == "_processor":  # while it is copied
            raise AttributeError(name)
        return getattr(self._processor, name)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one is other


def format_of(files: GeneratorFiles, tokenizer: Any) -> PromptFormat:
    """Return the format of a checkpoint: the processor's chat template, else the tokenizer's, else the documented one.

    InstructBLIP reads the prompt as it is, whatever templates there are.

    Raises
    ------
    CheckpointError
        If it has a chat template that puts the prompt, or the one image, in no place.
    """
    if files.family == _AS_IT_IS:
        return PromptFormat(tokenizer, "{}", "slot", False, starts=True)
    sees = files.sees
    templates = dict(_templates(tokenizer, files.folder, sees=sees))
    formats = [
        PromptFormat(tokenizer, template, content, sees, starts=where == "processor", switches=files.switches)
        for where, template in templates.items()
        for content in (("parts", "text") if sees else ("text",))
    ]  # fmt: skip
    for candidate in formats:
        if _fits(candidate):
            return candidate
    if formats:
        raise CheckpointError(
            "the chat template of this checkpoint does not take a prompt" + (" with one image" if sees else ""),
            where=files.folder,
            found=next(iter(templates.values()))[:200],
            expected=f"one {IMAGE} and the prompt in what it renders" if sees else "the prompt in what it renders",
        )
    return PromptFormat(tokenizer, (_SEEING if sees else _BLIND)[files.text_model], "slot", sees, starts=True)


def _templates(tokenizer: Any, folder: Path, *, sees: bool) -> Iterator[tuple[str, str]]:
    if sees and (processor_template := chat_template(folder, PROCESSOR_TEMPLATES)) is not None:
        yield "processor", processor_template
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if isinstance(template, str):
        yield "tokenizer", template


def _fits(candidate: PromptFormat) -> bool:
    import jinja2

    try:
        rendered = candidate.render(PROBES[0])
    except (jinja2.TemplateError, *_UNFIT):
        return False
    # A list that a template prints as it is holds the prompt too, in quotes.
    printed = json.dumps({"type": "image"})[1:-1].replace('"', "'") in rendered
    return PROBES[0] in rendered and not printed and rendered.count(IMAGE) == int(candidate.sees)
