"""Encoders on a device: loaded once, kept for the next cell, never stale."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import require_unchanged
from plumbline.encoders.encoder import Encoder
from plumbline.encoders.families import FAMILIES
from plumbline.encoders.folders import load_encoder
from plumbline.images.decoding import DECODING_VERSION
from plumbline.recording import unrecorded
from plumbline.version import library_version
from resources.workspace import Workspace

_LIBRARIES = ("torch", "transformers", "open_clip_torch", "pillow")
"""Libraries that run encoders and turn files into pixels."""


class EncoderPool:
    """The encoders of an audit on its device, the most recently used kept in memory.

    Parameters
    ----------
    workspace : Workspace
        Says where checkpoints are and which device to use.
    keep : int
        How many stay loaded.
    """

    def __init__(self, workspace: Workspace, *, keep: int = 2) -> None:
        self._workspace, self._keep = workspace, keep
        self._loaded: OrderedDict[tuple[str, Placement], Encoder] = OrderedDict()

    def _placement(self) -> Placement:
        audit = self._workspace.audit
        return Placement.choose(device=audit.device, dtype=audit.engine.dtype, compiled=audit.engine.compile)

    def get(self, encoder: str) -> Encoder:
        """Return an encoder whose weights are those on disk now, run as the audit file says now; else loads it again.

        Raises
        ------
        CheckpointError
            If the checkpoint is not on disk, does not load, or changes while it is being loaded.
        """
        files = self._workspace.checkpoint(encoder)
        self._workspace.note("encoder_runtime", encoder, value=encoder_runtime(self._workspace, encoder))
        placement = self._placement()
        key = (encoder, placement)
        held = self._loaded.get(key)
        if held is None or held.identity.weights != files.digest or held.family != files.family:
            held = load_encoder(files, placement=placement)
            now = self._workspace.checkpoint(encoder).digest
            require_unchanged(encoder, files.digest, now, where=files.folder)
            self._loaded[key] = held
        self._loaded.move_to_end(key)
        while len(self._loaded) > self._keep:
            self._loaded.popitem(last=False)
        return held


def encoder_runtime(workspace: Workspace, encoder: str) -> list[Any]:
    """Return what decides the embeddings of an encoder beside its files: adapter, libraries, number type and device.

    No weights are loaded.
    """
    with unrecorded():
        audit, family = workspace.audit, FAMILIES[workspace.checkpoint(encoder).family]
        placement = Placement.choose(device=audit.device, dtype=audit.engine.dtype, compiled=audit.engine.compile)
    libraries = [library_version(name) for name in _LIBRARIES]
    return [family.version, DECODING_VERSION, placement.dtype, placement.device_kind, placement.compiled, *libraries]
