"""What is said of servers that cannot be: engines on devices that they do not run on."""

import pytest

import forerun


@pytest.mark.parametrize(
    ("engine", "device", "refused"),
    [
        ("vllm", "gtx-1080-ti", True),
        ("sglang", "p40", True),
        ("vllm", "v100-sxm2-16gb", False),
        ("llama.cpp", "gtx-1080-ti", False),
    ],
)
def test_an_engine_does_not_run_on_gpus_before_those_that_it_needs(engine, device, refused):
    answer = forerun.llm(
        "llama-3.2-1b",
        device=device,
        engine=engine,
        input_tokens=100,
        output_tokens=100,
        concurrency=1,
    )
    said = [own for own in answer.limits if "from compute capability 7" in str(own)]
    assert bool(said) == refused
    assert (answer.tpot_ms is None) == refused
