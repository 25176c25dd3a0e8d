"""FairFace: folders `train` and `val`, and a label file for each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from plumbline.datasets.indexes import Row, dataset_root, index_file, leads_out, read_rows, refuse_line, shown_in
from plumbline.datasets.records import Declaration, Entry, Reader, Refusal, load_declaration
from plumbline.errors import DatasetError


class FairFace(Reader):
    """Reader of FairFace (Karkkainen and Joo, WACV 2021).

    Either label file may be absent. The published `file` is `val/1.jpg`; copies exist with folders put before
    it (`fairface/val/1.jpg`), so the last two parts count. The images lie in `val/` and `train/` of the root.
    """

    declaration: Declaration = load_declaration("fairface")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the existing label files, train before val.

        Raises
        ------
        DatasetError
            If neither is there.
        """
        folder = dataset_root(root)
        names = self.declaration.indexes.values()
        present = [name for name in names if os.path.lexists(folder / name)]
        if not present:
            raise DatasetError(
                "the FairFace folder has no label file",
                where=root,
                found=shown_in(folder),
                expected=" or ".join(names),
                hint="put the published label files beside the folders `train` and `val`",
            )
        return present

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a line of the label files, train before val.

        Raises
        ------
        DatasetError
            If no label file is there, one has another header, or together they list nothing.
        """
        folder = dataset_root(root)
        present = self.index_files(folder)
        listed = [
            row if isinstance(row, Refusal) else self._entry(row, name, split)
            for split, name in self.declaration.indexes.items()
            if name in present
            for row in read_rows(index_file(folder, name), name=name, columns=self.declaration.index_columns)
        ]
        if not listed:
            hint = "put the published label files there"
            raise DatasetError("the FairFace label files list no image", where=root, found=present, hint=hint)
        return listed

    def _entry(self, row: Row, name: str, split: str) -> Entry | Refusal:
        raw = {column: row.values[column] for column in self.declaration.index_columns}
        listed = raw.pop(self.declaration.index_columns[0])
        parts = PurePosixPath(listed).parts
        if leads_out(listed):
            # Left as it is listed, for `inside` to refuse.
            return Entry(listed, split, raw, name, row.line)
        if len(parts) < 2 or parts[-2] != split:
            what = "the file does not belong to the split of its index"
            return refuse_line("wrong_split", what, name, row.line, listed, f"{split}/N.jpg", path=listed)
        return Entry("/".join(parts[-2:]), split, raw, name, row.line)
