"""Pictures of people leave the home only where the audit file says so."""

from types import SimpleNamespace

import pytest
from PIL import Image

from assets.audit_changes import _preview
from plumbline.config.file import read_audit
from plumbline.digests import digest_bytes

FILE = """
pictures: {pictures}
datasets:
  staff: {{reader: folder, root: {root}, map: {{index: people.csv, path: path, columns: {{gender: sex}}}}}}
  drawn: {{reader: fairface, root: "planted:fairface"}}
encoders: {{mine: {{address: "local-dir:nowhere"}}}}
audit: [{{}}]
"""


@pytest.fixture
def workspace(tmp_path, request):
    Image.new("RGB", (32, 32), "teal").save(tmp_path / "face.png")
    path = tmp_path / "audit.yaml"
    path.write_text(FILE.format(pictures=request.param, root=tmp_path))
    return SimpleNamespace(audit=read_audit(path), dataset_root=lambda name: tmp_path, root=tmp_path)


@pytest.mark.parametrize(("workspace", "shown"), [("false", False), ("true", True)], indirect=["workspace"])
def test_a_flipped_answer_is_pictured_where_the_audit_file_allows_it(workspace, shown):
    image = digest_bytes((workspace.root / "face.png").read_bytes())
    seen = _preview(workspace, {"dataset": "staff", "path": "face.png", "image_id": image})
    assert (seen.source is not None) == shown
    assert shown or "`pictures`" in seen.missing
    assert workspace.audit.shows_pictures("staff") == shown and workspace.audit.shows_pictures("drawn")
