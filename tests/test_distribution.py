"""What is handed out beside the code: one version, every data file, whose work it is, one way to run CI."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

import plumbline
from orchestration.command_line import app
from plumbline.commands.main import PIPELINE, mlflow_app
from plumbline.commands.main import app as light
from plumbline.errors import PlumblineError
from resources.checkout import PROJECT

PACKAGE = PROJECT / "plumbline"
METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))


def test_the_version_is_that_of_the_project_file():
    assert plumbline.__version__ == METADATA["project"]["version"]
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.output.strip()) == (0, plumbline.__version__)


def test_every_file_that_is_no_module_goes_into_the_wheel():
    patterns = METADATA["tool"]["setuptools"]["package-data"]["plumbline"]
    packed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    there = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in there if path.suffix != ".py"} - packed == set()
    assert PACKAGE / "py.typed" in packed


def test_the_notice_names_every_word_list_and_its_licence():
    notice = (PROJECT / "NOTICE").read_text("utf-8")
    named = set(re.findall(r"[\w./*-]+\.(?:txt|yaml|LICENSE)", notice))
    data = {path for kind in ("txt", "yaml", "LICENSE") for path in PACKAGE.rglob(f"*.{kind}")}
    data = {path for path in data if not {"world", "published"} & set(path.parts)}  # which it names as folders
    assert len(data) > 30
    assert {path for path in data if not any(path.match(pattern) for pattern in named)} == set()
    holders = [path.read_text("utf-8") for path in PACKAGE.rglob("*.LICENSE")]
    assert holders and all(re.search(r"Copyright \(c\) .+", text)[0] in notice for text in holders)


def test_the_citation_has_the_licence_and_no_second_version():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text("utf-8"))
    assert citation["license"] == METADATA["project"]["license"]
    assert "version" not in citation


def test_ci_runs_what_a_person_runs_on_every_version_and_nothing_else():
    jobs = yaml.safe_load((PROJECT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]
    for job, run in (("ci", ".ci/run"), ("coverage", "make coverage"), ("docs", "make docs notebooks")):
        checkout, python, command = jobs[job]["steps"]
        assert checkout["uses"].startswith("actions/checkout@")
        assert python["uses"].startswith("actions/setup-python@")
        assert command == {"run": run}
    versions = jobs["ci"]["strategy"]["matrix"]["python"]
    named = [each for each in METADATA["project"]["classifiers"] if "Python :: 3." in each]
    assert named == [f"Programming Language :: Python :: {version}" for version in versions]
    allowed = SpecifierSet(METADATA["project"]["requires-python"])
    minors = [f"3.{minor}" for minor in range(8, 20)]
    assert [minor for minor in minors if minor in allowed] == versions
    # The script is the two targets of the Makefile, so that nothing is checked there that is not checked here.
    lines = (PROJECT / ".ci/run").read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make check", "make test"]


def test_the_command_of_the_wheel_names_every_command_of_the_pipeline_that_it_lacks():
    own = {command.name for command in light.registered_commands}
    assert {command.name for command in app.registered_commands} == own | set(PIPELINE)
    assert not own & set(PIPELINE)
    with pytest.raises(PlumblineError, match=r"`plumbline ui` is a command of the pipeline[\s\S]*make audit"):
        CliRunner().invoke(light, ["ui"], catch_exceptions=False)


def test_every_entry_point_leads_into_the_wheel_and_says_where_the_pipeline_is(monkeypatch):
    points = [METADATA["project"]["scripts"], *METADATA["project"]["entry-points"].values()]
    targets = [target for group in points for target in group.values()]
    loaded = [EntryPoint("plumbline", target, "any").load() for target in targets]
    assert all(target.startswith("plumbline.") for target in targets) and all(map(callable, loaded))
    monkeypatch.setattr("plumbline.commands.main._in_checkout", lambda: False)
    with pytest.raises(PlumblineError, match=r"a command of the pipeline[\s\S]*make audit"):
        mlflow_app()


def test_the_wheel_holds_the_library_alone_and_a_checkout_is_a_path_that_no_folder_shadows(tmp_path):
    found = METADATA["tool"]["setuptools"]
    assert found["packages"]["find"]["include"] == ["plumbline*"]
    assert found["package-dir"] == {"": "."}, "else setuptools installs an import hook, which Python asks last"
    (tmp_path / "plumbline").mkdir()  # a clone beside a notebook
    code = "import plumbline; print(plumbline.max_skew([12, 8], [100, 100]).value)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "0.5", done.stderr


def test_an_environment_that_declares_operators_loads_no_plumbline_by_itself(tmp_path):
    from plumbline.checkpoints.operators import write_beside

    write_beside(tmp_path)
    code = (
        f"import site, sys; site.addsitedir({str(tmp_path)!r}); "
        "assert 'torchvision_operators' in sys.modules and 'plumbline' not in sys.modules"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
