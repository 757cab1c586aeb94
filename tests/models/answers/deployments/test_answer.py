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


@pytest.mark.parametrize("device", ["l4", "epyc-9654"])
@pytest.mark.parametrize("tokens", [100, 4000, 16000])
def test_slots_and_stages_change_no_prompt_of_one_stream_of_llama_cpp(tokens, device):
    asked = {"input_tokens": tokens, "output_tokens": 2, "concurrency": 1}
    settings = [{}, *({"engine": {"name": "llama.cpp", "max_sequences": n}} for n in (1, 4))]
    settings += [{"parallelism": {"pipeline": 4}}] * (device == "l4")
    one, *others = (
        forerun.llm(
            "llama-3.1-8b",
            device=device,
            quantization="q4_k_m",
            **{"engine": "llama.cpp", **asked, **own},
        )
        for own in settings
    )
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        found = [getattr(own, name) for own in (one, *others)]
        assert [own.value for own in found] == pytest.approx(
            [found[0].value] * len(found), rel=0.05
        )
        assert [own.high for own in found[:3]] == pytest.approx([found[0].high] * 3)


@pytest.mark.parametrize("count", [32, 256])
def test_the_first_token_of_a_burst_comes_before_the_last_at_the_upper_ends_too(count):
    lengths = {"input_tokens": 1024, "output_tokens": 256}
    answer = forerun.llm("llama-3.1-8b", device="a100-sxm-80gb", num_prompts=count, **lengths)
    first, each, whole = answer.ttft_ms, answer.tpot_ms, answer.request_latency_ms
    assert first.value <= first.high <= whole.high - 255 * each.low + 1e-6
