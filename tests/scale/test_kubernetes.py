"""The example for Kubernetes holds by the types that Dagster's own parts read it with."""

import json
import shutil

import pytest
import yaml
from dagster._config import process_config
from dagster._core.instance.config import dagster_instance_config
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.utils import pg_url_from_config
from homes import make_home
from sqlalchemy import create_engine

from orchestration.definitions import build_definitions
from resources.checkout import PROJECT

FOLDER = PROJECT / "deploy" / "kubernetes"
DOCUMENTS = list(yaml.safe_load_all((FOLDER / "plumbline.yaml").read_text()))


def valid(schema, content):
    result = process_config(schema, content)
    assert result.success, [error.message for error in result.errors]
    return result.value


def named(kind, name):
    (found,) = (each for each in DOCUMENTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


@pytest.fixture
def instance(tmp_path):
    shutil.copy(FOLDER / "dagster.yaml", tmp_path)
    return dagster_instance_config(str(tmp_path))[0]


def test_the_instance_keeps_runs_in_postgres_and_launches_them_as_pods(instance, monkeypatch):
    from dagster_k8s import K8sRunLauncher

    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "of the test")
    stored = valid(DagsterPostgresStorage.config_type(), instance["storage"]["postgres"])
    assert stored["postgres_db"]["password"] == "of the test"
    assert create_engine(pg_url_from_config(stored)).driver == "psycopg2", "a client that is installed"
    launcher = instance["run_launcher"]
    assert (launcher["module"], launcher["class"]) == ("dagster_k8s", K8sRunLauncher.__name__)
    config = valid(K8sRunLauncher.config_type(), launcher["config"])
    places = named("ConfigMap", config["env_config_maps"][0])["data"]
    assert config["dagster_home"] == f"{places['PLUMBLINE_HOME']}/dagster"
    assert config["service_account_name"] == named("ServiceAccount", "plumbline")["metadata"]["name"]
    assert instance["concurrency"]["pools"]["granularity"] == "op"


@pytest.fixture
def places_in_pods(monkeypatch):
    for name, value in named("ConfigMap", "plumbline-places")["data"].items():
        if name.startswith("PLUMBLINE_EXECUTOR"):
            monkeypatch.setenv(name, value)


def test_steps_of_the_gpu_pool_and_no_others_ask_for_a_gpu(places_in_pods, tmp_path):
    from dagster_k8s import k8s_job_executor
    from dagster_k8s.job import UserDefinedDagsterK8sConfig, get_user_defined_k8s_config

    config = valid(k8s_job_executor.config_schema.config_type, yaml.safe_load((FOLDER / "executor.yaml").read_text()))
    definitions = build_definitions(make_home(tmp_path).workspace)
    assert definitions.executor.name == "k8s"
    graph = definitions.resolve_asset_graph()
    pooled = {key.path[-1] for key in graph.materializable_asset_keys if "gpu" in graph.get(key).pools}
    assert set(config["per_step_k8s_config"]) == pooled
    for step in config["per_step_k8s_config"].values():
        # What Dagster makes of a step's own tag.
        container = get_user_defined_k8s_config({"dagster-k8s/config": json.dumps(step)}).container_config
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    common = UserDefinedDagsterK8sConfig.from_dict(config["step_k8s_config"]).container_config
    assert "nvidia.com/gpu" not in common["resources"]["limits"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_every_document_is_what_its_kind_says(document):
    import kubernetes.client
    from dagster_k8s.models import k8s_model_from_dict, k8s_snake_case_dict

    model = getattr(kubernetes.client, f"V1{document['kind']}")
    made = k8s_model_from_dict(model, k8s_snake_case_dict(model, document))
    assert made.metadata.namespace == "plumbline"
    if document["kind"] == "Deployment":
        containers = made.spec.template.spec.containers
        volumes = {volume.name for volume in made.spec.template.spec.volumes}
        assert {mount.name for each in containers for mount in each.volume_mounts} == volumes
        assert all({env.name for env in each.env} >= {"DAGSTER_HOME", "DAGSTER_PG_PASSWORD"} for each in containers)
