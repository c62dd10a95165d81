"""No message and no report shows the password of a URL."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

import framekiln
from framekiln.api.request import make_request
from framekiln.contract.errors import OutputError
from framekiln.output.store_errors import read_errors


@pytest.mark.parametrize(
    "url", ["s3://AKIA1:s3cr3t/x@bucket/out", "s3://:s3cr3t@bucket/out", "https://me:s3cr3t@host/list.txt"]
)
def test_an_error_hides_the_password_of_a_url(url):
    with pytest.raises(OutputError) as caught, read_errors(url, "frames/part.parquet"):
        raise OSError(5, "Input/output error")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert "s3cr3t" not in str(error) and "frames/part.parquet" in str(error)


def test_an_output_that_cannot_be_opened_hides_it_too():
    with pytest.raises(framekiln.UserError) as caught:
        framekiln.open("no://id:s3cr3t@bucket/out")
    assert "s3cr3t" not in str(caught.value) and caught.value.code == "FK-OUTPUT-ADDRESS"


def test_run_json_has_it_where_retry_reads_it_alone():
    out = "s3://id:s3cr3t@bucket/out"
    request = make_request("s3://id:s3cr3t@bucket/in", out)
    command = {"arguments": ("run", "photos", out), "call": f"framekiln.run({out!r})"}
    record = replace(request, **command).to_record()
    assert record.pop("input") == request.inputs[0] and "s3cr3t" not in str(record)
