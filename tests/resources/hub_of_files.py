"""A hub that is a few files, homes that fetch from it, and what its repositories hold."""

import io
import json
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import torch
from huggingface_hub._local_folder import write_download_metadata  # what the client notes of each file

from resources.workspace import Workspace

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB_ADDRESS = f"hf-hub:o/n@{COMMIT}"
LATER = "f" * 40
TAG = "ViT-B-32-quickgelu/openai"
EARLIER_FILES = {"open_clip_model.safetensors": b"w", "vocab.json": b"{}"}
CLIP = {
    "config.json": b'{"model_type": "clip"}',
    "preprocessor_config.json": b"{}",
    "tokenizer.json": b"{}",
    "vocab.json": b"{}",
    "merges.txt": b"",
    "README.md": b"read me",
    "modeling_clip.py": b"import os",
    "flax_model.msgpack": b"x",
    "training_args.bin": b"pickle",
    "onnx/model.onnx": b"x",
}
LLAVA = {
    "config.json": json.dumps({"model_type": "llava", "text_config": {"model_type": "mistral"}}).encode(),
    "preprocessor_config.json": b"{}",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"USER: {{ messages }}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": b"w",
    "model-00002-of-00002.safetensors": b"x",
}
ROBERTA = {
    "config.json": json.dumps({"model_type": "roberta", "id2label": {"0": "toxicity"}}).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": b"w",
}
KEPT = ["config.json", "fetched.json", "merges.txt", "model.safetensors", "preprocessor_config.json", "tokenizer.json",
        "vocab.json"]  # fmt: skip


class Hub:
    """A hub with one repository of the given files."""

    def __init__(self, files: dict[str, bytes], *, error: Exception | None = None, newest: str = COMMIT):
        self.files, self.error, self.newest, self.asked, self.given = files, error, newest, [], []
        self.answers: str | None = None  # whatever it is asked for
        self.gives: str | None = None  # files of this commit, whatever it is asked for

    def model_info(self, repository, revision=None):
        self.asked.append((repository, revision))
        if self.error:
            raise self.error
        siblings = [SimpleNamespace(rfilename=name) for name in self.files]
        return SimpleNamespace(sha=self.answers or revision or self.newest, siblings=siblings)

    def snapshot_download(self, repository, *, revision, local_dir, allow_patterns, ignore_patterns=(), repo_type=None):
        if self.error:
            raise self.error
        self.asked.append((repository, revision, repo_type))
        for name, content in self.files.items():
            ignored = any(fnmatch(name, pattern) for pattern in ignore_patterns)
            if not ignored and any(fnmatch(name, pattern) for pattern in allow_patterns):
                self.given.append(name)
                (Path(local_dir) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(local_dir) / name).write_bytes(content)
                write_download_metadata(Path(local_dir), name, self.gives or revision, "etag")


def workspace(tmp_path, address, **entry):
    tmp_path.mkdir(exist_ok=True)
    encoders = {"e": {"address": address, **entry}}
    (tmp_path / "audit.yaml").write_text(
        json.dumps({"labeller": "e", "datasets": {}, "encoders": encoders, "audit": []})
    )
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path)


def pickled(content) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def contents(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def generative(tmp_path, **parts) -> Workspace:
    tmp_path.mkdir(exist_ok=True)
    audit = {"labeller": "e", "datasets": {}, "encoders": {"e": {"address": "local-dir:x"}}, **parts}
    (tmp_path / "audit.yaml").write_text(json.dumps(audit))
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path)
