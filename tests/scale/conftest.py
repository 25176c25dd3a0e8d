"""An S3 server of the tests' own; credentials and endpoint come from the environment, as they do for a person."""

import logging

import pytest


@pytest.fixture(scope="session")
def s3():
    """Return what a process needs in its environment to reach a server with an empty bucket `audits`."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
    boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys).create_bucket(Bucket="audits")
    yield {
        "AWS_ENDPOINT_URL_S3": address,
        "AWS_DEFAULT_REGION": "us-east-1",
        **{name.upper(): value for name, value in keys.items()},
    }
    server.stop()
