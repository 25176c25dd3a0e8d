"""Encoders on a device: loaded once, kept for the next cell, never stale."""

from __future__ import annotations

from collections import OrderedDict

from plumbline.checkpoints.device import Placement
from plumbline.encoders.encoder import Encoder
from plumbline.encoders.folders import load_encoder
from plumbline.errors import CheckpointError
from resources.workspace import Workspace


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
        placement = self._placement()
        key = (encoder, placement)
        held = self._loaded.get(key)
        if held is None or held.identity.weights != files.digest or held.family != files.family:
            held = load_encoder(files, placement=placement)
            if (now := self._workspace.checkpoint(encoder)).digest != files.digest:
                raise CheckpointError(
                    f"the checkpoint of `{encoder}` was replaced while it was loading",
                    where=files.folder,
                    found=f"digest {now.digest[:16]}…",
                    expected=f"digest {files.digest[:16]}…",
                    hint="run again once the file is complete",
                )
            self._loaded[key] = held
        self._loaded.move_to_end(key)
        while len(self._loaded) > self._keep:
            self._loaded.popitem(last=False)
        return held
