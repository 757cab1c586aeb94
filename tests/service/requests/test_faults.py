"""Messages about requests: plain words, and a name for one that is misspelt."""

import pytest
from pydantic import ValidationError

from forerun.service.problems import unfit
from forerun.service.schemas.serving import LlmEstimateIn


def fault(**content):
    with pytest.raises(ValidationError) as raised:
        LlmEstimateIn.model_validate({"model": "llama-3.1-8b", "device": "h100", **content})
    return unfit(raised.value.errors()).detail


def test_a_field_that_does_not_exist_is_named_with_one_that_does():
    line = fault(model={"name": "llama-3.1-8b", "quantisation": "fp8"})
    assert "'quantisation' is no field; did you mean quantization?" in line
    assert "Extra inputs" not in line


def test_where_no_name_is_like_it_none_is_suggested():
    line = fault(model={"name": "llama-3.1-8b", "qqqqqqqq": 1})
    assert "'qqqqqqqq' is no field (given 1)" in line


def test_no_word_of_the_library_is_in_front():
    line = fault(input_tokens=1, output_tokens=1, concurrency=1, requests_per_s=1)
    assert "Value error" not in line
    assert not line.startswith(":")
    assert "give one of concurrency and requests_per_s" in line


def test_a_field_of_another_request_is_not_suggested_for_itself():
    line = fault(model={"name": "llama-3.1-8b", "operator": 1})
    assert "did you mean operator?" not in line
