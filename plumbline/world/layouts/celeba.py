"""The planted CelebA: attributes and partition as text files beside the aligned faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents, write_bad_files, write_images, write_lines

_SIZE = 400
_IMAGES = "img_align_celeba"
_NAMES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose",
    "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses",
    "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache",
    "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks",
    "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick",
    "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip

_OUTSIDE = "../outside.jpg"
_BAD = {
    f"{_IMAGES}/000901.jpg": "no bytes",
    f"{_IMAGES}/000902.jpg": "cut off",
    f"{_IMAGES}/000903.jpg": "text",
    f"{_IMAGES}/000904.jpg": "missing file",
    f"{_IMAGES}/000905.jpg": "no partition",
    f"{_IMAGES}/000906.jpg": "same bytes, other gender",
    f"{_IMAGES}/000907.jpg": "same bytes, other gender",
    _OUTSIDE: "leaves the root",
}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    attributes = faces.sample_attributes(_SIZE, rng)
    names = [f"{number:06}.jpg" for number in range(1, _SIZE + 1)]
    write_images(root, [f"{_IMAGES}/{name}" for name in names], faces.draw(attributes, rng))
    write_bad_files(root, _BAD, bad_contents(rng))
    bad = [path.removeprefix(f"{_IMAGES}/") for path in _BAD]
    male = [gender == "man" for gender in attributes["gender"]]
    male += [not path.endswith("907.jpg") for path in bad]
    rows = [_row(name, sign, rng) for name, sign in zip(names + bad, male)]
    write_lines(root / "list_attr_celeba.txt", [str(len(rows)), " ".join(_NAMES) + " ", *rows])
    # The first four fifths are 0, train; a tenth each is 1, val, and 2, test.
    parts = [f"{name} {max(0, 10 * i // _SIZE - 7)}" for i, name in enumerate(names)]
    parts += [f"{name} 2" for name, path in zip(bad, _BAD) if _BAD[path] != "no partition"]
    write_lines(root / "list_eval_partition.txt", parts)
    return attributes.with_columns(path=pl.Series([f"{_IMAGES}/{name}" for name in names]))


def _row(name: str, male: bool, rng: np.random.Generator) -> str:
    """Write one line; each sign takes three places, so that -1 and 1 stand below each other."""
    signs = rng.choice([-1, 1], len(_NAMES))
    signs[_NAMES.index("Male")] = 1 if male else -1
    return name + "".join(f"{sign:3}" for sign in signs)


LAYOUT = Layout("celeba", _draw, _BAD)
"""400 good files, 320 in train, 40 each in val and test. `../outside.jpg` exists."""
