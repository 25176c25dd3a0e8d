"""How a prompt is formatted for a model: by its chat template, or else as its family documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from plumbline.checkpoints.folders import read_configuration
from plumbline.errors import CheckpointError, GenerationError
from plumbline.generators.folders import CHAT_TEMPLATE, GeneratorFiles

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

_PROBE = "Describe this."


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
    """

    tokenizer: Any
    template: str
    content: Literal["parts", "text", "slot"]
    sees: bool
    starts: bool

    def render(self, prompt: str) -> str:
        """Return the whole text that the model reads, with one image token where it sees."""
        if self.content == "slot":
            return self.template.replace("{}", prompt)
        content: Any = f"{IMAGE}\n{prompt}" if self.sees else prompt
        if self.content == "parts":
            content = [{"type": "image"}, {"type": "text", "text": prompt}]
        messages = [{"role": "user", "content": content}]
        rendered = self.tokenizer.apply_chat_template(
            messages, chat_template=self.template, tokenize=False, add_generation_prompt=True
        )
        return str(rendered)

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
        """
        ids = self.tokens(prompt)
        if ids.count(image_token) != 1:
            raise GenerationError(
                "a prompt must leave the place of the image to the chat template",
                where=prompt,
                found=f"{ids.count(image_token)} image tokens",
                expected="one, which the template puts in",
            )
        cut = ids.index(image_token)
        return AroundImage(ids[:cut], ids[cut + 1 :])

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the tokens beside the tokenizer, for a digest."""
        return {"template": self.template, "content": self.content, "starts": self.starts}


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
        PromptFormat(tokenizer, template, content, sees, starts=where == "processor")
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
    if sees and (processor_template := _processor_template(folder)) is not None:
        yield "processor", processor_template
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if isinstance(template, str):
        yield "tokenizer", template


def _processor_template(folder: Path) -> str | None:
    """Return the chat template that a processor of this folder would have, where transformers looks for it."""
    if (folder / CHAT_TEMPLATE).is_file():
        return (folder / CHAT_TEMPLATE).read_text("utf-8")
    for name in ("chat_template.json", "processor_config.json"):
        if (folder / name).is_file():
            chat_template = read_configuration(folder / name).get("chat_template")
            if isinstance(chat_template, str):
                return chat_template
    return None


def _fits(candidate: PromptFormat) -> bool:
    import jinja2

    try:
        rendered = candidate.render(_PROBE)
    # What templates do with a content that they were not written for.
    except (jinja2.TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return False
    # A list that a template prints as it is holds the prompt too, in quotes.
    printed = json.dumps({"type": "image"})[1:-1].replace('"', "'") in rendered
    return _PROBE in rendered and not printed and rendered.count(IMAGE) == int(candidate.sees)
