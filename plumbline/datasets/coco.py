"""COCO captions: `captions_*.json` and the folders of images that they are of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.datasets.indexes import dataset_root, index_file, refuse_line, shown_in, unreadable_index
from plumbline.datasets.records import Entry, Reader, Refusal, caption_text, load_declaration, printable
from plumbline.errors import DatasetError

MAX_JSON_BYTES = 1 << 30
"""Of one `captions_*.json`, which is read whole; that of COCO's 118,287 training images has 92 MB."""

_NAME = re.compile(r"captions_(?P<part>(?P<split>[a-z]+)[0-9]*)\.json")
_FOLDERS = ("", "annotations/")
_KEPT = frozenset({"images", "annotations", "id", "image_id", "file_name", "caption"})


class COCOCaptions(Reader):
    """Reader of COCO captions, of any year: `annotations/captions_train2017.json` beside `train2017/`.

    The JSON files may lie in the root too, and the folders of images in `images/`. An image has several captions, and
    a row for each: the caption says in what a picture is listed. An image without a caption, a caption without an
    image and an id that comes twice are quarantined. What the file name says is the split: `train` or `val`.
    """

    declaration = load_declaration("coco")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the JSON files of captions, in the order of their names.

        Raises
        ------
        DatasetError
            If there is none.
        """
        folder = dataset_root(root)
        names = sorted(
            f"{below}{path.name}"
            for below in _FOLDERS
            for path in (folder / below).glob("captions_*.json")
            if _NAME.fullmatch(path.name)
        )
        if not names:
            raise DatasetError(
                "the COCO folder has no file of captions",
                where=root,
                found=shown_in(folder),
                expected="annotations/captions_train2017.json or annotations/captions_val2017.json",
                hint="put the published annotations beside the folders of images",
            )
        return names

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a caption, image by image as the file lists them.

        Raises
        ------
        DatasetError
            If there is no file of captions, one is no JSON of the published form, or they list nothing.
        """
        folder = dataset_root(root)
        listed = [item for name in self.index_files(folder) for item in _pairs(folder, name)]
        if not listed:
            raise DatasetError(
                "the COCO captions list no image",
                where=root,
                found="no pair of image and caption",
                expected="at least one",
                hint="put the published files there",
            )
        return listed

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Return the caption."""
        return {"caption": caption_text(raw["caption"])}


def _pairs(root: Path, name: str) -> Iterator[Entry | Refusal]:
    """Yield the captions of one file, below each image, and then what belongs to none; lines count what is listed."""
    content = _content(root, name)
    images, captions = content["images"], content["annotations"]
    named = _NAME.fullmatch(Path(name).name)
    split, part = (named["split"], named["part"]) if named else ("", "")
    below = part if (root / part).is_dir() or not (root / "images" / part).is_dir() else f"images/{part}"
    of_image: dict[object, list[tuple[int, Any]]] = {}
    for line, caption in enumerate(captions, 1):
        of_image.setdefault(_id(caption, "image_id"), []).append((line, caption))
    seen: set[object] = set()
    for line, image in enumerate(images, 1):
        file_name, image_id = _value(image, "file_name"), _id(image, "id")
        path = f"{below}/{file_name}" if isinstance(file_name, str) else name
        if not isinstance(file_name, str) or image_id is None or image_id in seen:
            twice = image_id is not None and image_id in seen
            code, what = ("duplicate_key", "an id comes twice") if twice else ("malformed_row", "an image has no name")
            yield _refused(code, what, name, line, image, "an image with `id`, once, and `file_name`", path)
            continue
        seen.add(image_id)
        captions_of_image = of_image.pop(image_id, [])
        if not captions_of_image:
            what = "the image has no caption"
            yield _refused("missing_caption", what, name, line, image, "an annotation with its id", path)
        for at, caption in captions_of_image:
            text = _value(caption, "caption")
            yield Entry(path, split, {"caption": text if isinstance(text, str) else ""}, name, at)
    for captions_of_image in of_image.values():
        for line, caption in captions_of_image:
            what, expected = "the caption belongs to no image", "`image_id` of an image of the same file"
            yield _refused("unknown_image", what, name, line, caption, expected, name)


def _refused(code: str, what: str, name: str, line: int, found: Any, expected: str, path: str) -> Refusal:
    return refuse_line(code, what, name, line, printable(json.dumps(found, default=str)), expected, path=path)


def _value(entry: Any, key: str) -> Any:
    return entry.get(key) if isinstance(entry, dict) else None


def _id(entry: Any, key: str) -> str | int | None:
    value = _value(entry, key)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _content(root: Path, name: str) -> dict[str, list[Any]]:
    """Return what a file lists: of images and captions only what is read is kept."""
    path = index_file(root, name)
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise DatasetError(
                "the file of captions is too large",
                where=name,
                found=f"{size} bytes",
                expected=f"at most {MAX_JSON_BYTES} bytes",
                hint="split it, and audit each part by itself",
            )
        with path.open(encoding="utf-8") as file:
            content = json.load(file, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if k in _KEPT})
    except OSError as error:
        raise unreadable_index(name, error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise _other(name, f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict) or not all(
        isinstance(content.get(key), list) for key in ("images", "annotations")
    ):
        raise _other(name, ", ".join(content) if isinstance(content, dict) else type(content).__name__)
    return content


def _other(name: str, found: str) -> DatasetError:
    return DatasetError(
        "the file of captions is not of the published form",
        where=name,
        found=printable(found),
        expected="JSON with the lists `images` (id, file_name) and `annotations` (id, image_id, caption)",
        hint="check that this is the published file and not damaged",
    )
