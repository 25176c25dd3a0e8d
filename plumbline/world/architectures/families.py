"""The families of tiny models, by the names that the audit file uses for families of encoders."""

from __future__ import annotations

from plumbline.world.architectures import align, bridgetower, open_clip, owlv2

FAMILIES = {
    "open_clip": open_clip.FAMILY,
    "align": align.FAMILY,
    "bridgetower": bridgetower.FAMILY,
    "owlv2": owlv2.FAMILY,
}
