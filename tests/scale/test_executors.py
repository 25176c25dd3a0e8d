"""The executor that the environment names, and mistakes in naming it."""

import pytest

from orchestration.executors import chosen_executor
from plumbline.errors import ConfigError
from resources.checkout import PROJECT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("max_concurent: 8", "max_concurent"),
        ("per_step_k8s_config: {image_embeddings: {container_config: 3}}", "container_config"),
        ("[", "cannot be read"),
    ],
)
def test_a_mistake_in_an_executors_file_is_said(monkeypatch, tmp_path, content, said):
    file = tmp_path / "executor.yaml"
    file.write_text(content)
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", "k8s")
    monkeypatch.setenv("PLUMBLINE_EXECUTOR_CONFIG", str(file))
    with pytest.raises(ConfigError, match=said) as raised:
        chosen_executor()
    assert str(file) in str(raised.value)


def test_an_environment_variable_that_is_not_set_is_named_in_a_line(monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", "dask")
    monkeypatch.setenv("PLUMBLINE_EXECUTOR_CONFIG", str(PROJECT / "deploy/dask/executor.yaml"))
    with pytest.raises(ConfigError, match="DASK_SCHEDULER_ADDRESS is not set") as raised:
        chosen_executor()
    assert "Stack Trace" not in str(raised.value)


def test_an_executor_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", "slurm")
    with pytest.raises(ConfigError, match=r"(?s)no such executor.*slurm.*in_process, multiprocess, dask, k8s"):
        chosen_executor()


def test_an_executor_that_needs_a_file_says_so(monkeypatch):
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", "dask")
    monkeypatch.delenv("PLUMBLINE_EXECUTOR_CONFIG", raising=False)
    with pytest.raises(ConfigError, match=r"(?s)PLUMBLINE_EXECUTOR_CONFIG, which is not set.*cluster"):
        chosen_executor()


@pytest.mark.parametrize("name", ["in_process", "multiprocess", "k8s"])
def test_the_others_need_no_file(monkeypatch, name):
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", name)
    monkeypatch.delenv("PLUMBLINE_EXECUTOR_CONFIG", raising=False)
    assert chosen_executor().name == name
