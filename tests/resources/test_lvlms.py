"""What of a generative audit is refused before anything runs."""

import json

import pytest
import yaml

from plumbline.datasets.preview import preview
from plumbline.digests import digest_file
from plumbline.errors import ConfigError
from resources.lvlms import require_askable, wrong_models
from resources.workspace import Workspace

HEADER = "sheet,text_id,group,text,annotator,label\n"


@pytest.fixture
def workspace(tmp_path):
    entries = {
        "labeller": "mine",
        "datasets": {"people": {"reader": "socialcounterfactuals", "root": "nowhere"}},
        "encoders": {"mine": {"address": "local-dir:mine"}},
        "lvlms": {"far": {"endpoint": {"urls": ["http://127.0.0.1:9/v1"], "model": "far"}}},
        "generate": [{"datasets": ["people"], "prompts": ["characteristics"]}],
        "language": {"annotations": str(tmp_path / "labels.csv"), "dictionaries": str(tmp_path / "words.csv")},
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(entries))
    poles = "Warmth_dict_hi,Warmth_dict_lo,Competence_dict_hi,Competence_dict_lo"
    (tmp_path / "words.csv").write_text(f"word,{poles}\nkind,1,0,0,0\ncold,0,1,0,0\nable,0,0,1,0\nlost,0,0,0,1\n")
    (tmp_path / "labels.csv").write_text(f"{HEADER}personality,k1,,a text,ann,1\n")
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")


def test_files_without_a_mistake_are_no_hindrance(workspace):
    require_askable(workspace)


def test_a_label_that_is_none_is_said_with_its_line(workspace):
    path = workspace.audit_path.parent / "labels.csv"
    path.write_text(f"{HEADER}personality,k1,,a text,ann,1\npersonality,k2,,a text,ann,yes\n")
    with pytest.raises(ConfigError) as said:
        require_askable(workspace)
    assert f"{path}, line 3, column label" in str(said.value)
    assert said.value.found == "yes" and said.value.expected == "0 (no) or 1 (yes)"


def test_a_dictionary_with_a_mistake_is_said_with_its_line(workspace):
    path = workspace.audit_path.parent / "words.csv"
    path.write_text(path.read_text().replace("cold,0", "cold,many"))
    with pytest.raises(ConfigError, match=r"words\.csv, line 3"):
        require_askable(workspace)


def test_a_file_that_is_not_there_is_said(workspace):
    (workspace.audit_path.parent / "labels.csv").unlink()
    with pytest.raises(ConfigError, match="is not there"):
        require_askable(workspace)


@pytest.mark.parametrize(
    ("line", "says"), [("[" * 100_000, "nested too deep"), ('{"image": "a"}', "line 2: None"), (None, "is not there")]
)
def test_check_reads_stored_answers_and_says_file_and_line(workspace, line, says):
    path = workspace.audit_path.parent / "answers.jsonl"
    entries = yaml.safe_load(workspace.audit_path.read_text())
    entries["lvlms"] = {"told": {"answers": {"files": [str(path)]}}}
    good = '{"image": "a", "prompt": "p", "text": "x"}\n'
    path.write_text(good)
    workspace.audit_path.write_text(yaml.safe_dump(entries))
    assert wrong_models(Workspace(audit_path=workspace.audit_path, home=workspace.home), {}) == {"told": ""}
    path.write_text(good + str(line)) if line else path.unlink()
    told = wrong_models(Workspace(audit_path=workspace.audit_path, home=workspace.home), {})["told"]
    assert says in told and str(path) in told


@pytest.mark.parametrize("named_by", ["path", "sha256"])
def test_check_says_which_questions_have_no_stored_answer(workspace, jpeg, named_by):
    folder = workspace.audit_path.parent / "faces"
    folder.mkdir()
    rows = ["file,gender"]
    for i in range(6):
        (folder / f"{i}.jpg").write_bytes(jpeg(i))
        rows.append(f"{i}.jpg,{'woman' if i % 2 else 'man'}")
    (folder / "index.csv").write_text("\n".join(rows))
    answers = workspace.audit_path.parent / "answers.jsonl"
    entries = yaml.safe_load(workspace.audit_path.read_text())
    column_map = {"index": "index.csv", "path": "file", "columns": {"gender": "gender"}, "min_shown": 1}
    entries["datasets"] = {"faces": {"reader": "folder", "root": str(folder), "map": column_map}}
    entries["lvlms"] = {"told": {"answers": {"files": [str(answers)]}}}
    entries["generate"] = [{"datasets": ["faces"], "prompts": ["characteristics"], "seeds": [0]}]
    workspace.audit_path.write_text(yaml.safe_dump(entries))
    seen = preview(
        Workspace(audit_path=workspace.audit_path, home=workspace.home).audit.datasets["faces"].open_reader(),
        folder, dataset="faces", balance={}, most_refused=0.1,
    )  # fmt: skip

    def told(images):
        names = {i: f"{i}.jpg" if named_by == "path" else digest_file(folder / f"{i}.jpg") for i in images}
        lines = [{"image": name, "prompt": "characteristics", "text": "kind"} for name in names.values()]
        answers.write_text("\n".join(map(json.dumps, lines)))
        return wrong_models(Workspace(audit_path=workspace.audit_path, home=workspace.home), {"faces": seen})["told"]

    assert told(range(6)) == ""
    assert "2 of 6 questions have no stored answer" in told(range(4))
