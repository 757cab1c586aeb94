"""Which engines run on which GPUs, checked against their documentation and general laws."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.engine_formats import CAPABILITY, ENGINES, awq_not_run, not_run
from forerun.data.number_formats import FORMATS
from forerun.features.readers.language_model.quantization import CACHE, with_formats
from forerun.features.readers.language_model.reader import named_language_model

CATALOG = DeviceCatalog.load()
LLAMA = named_language_model("llama-3.1-8b")
GPUS = {
    **{"volta": "v100-sxm2-16gb", "turing": "t4", "ampere": "a100-sxm-80gb", "ada": "l40s"},
    **{"hopper": "h100-sxm-80gb", "blackwell": "b200-sxm-180gb"},
}
NVIDIA = [CATALOG.get(name) for name in GPUS.values()]
VLLM = {
    "int4": "volta turing ampere ada hopper blackwell",  # GPTQ of "Supported Hardware", 0.11
    "int8": "volta turing ampere ada hopper blackwell",  # GPTQ of eight bits
    "q4_k_m": "volta turing ampere ada hopper blackwell",  # GGUF of the same table
    "fp8": "turing ampere ada hopper blackwell",  # "FP8 W8A8": weights alone from 7.5 on
    "mxfp4": "ampere ada hopper blackwell",  # mxfp4.py asks for 8.0
}
SGLANG = {
    "fp8": "ampere ada hopper blackwell",  # fp8.py asks for 8.0
    "int4": "turing ampere ada hopper blackwell",  # model_runner.py: "sm75 and above"
    "nvfp4": "blackwell",  # "Platform Compatibility": Blackwell, SM100+
}


@pytest.mark.parametrize(
    ("engine", "name", "published"),
    [("vllm", *own) for own in VLLM.items()] + [("sglang", *own) for own in SGLANG.items()],
)
def test_formats_run_where_engine_documentation_says(engine, name, published):
    model = with_formats(LLAMA, weights=name)
    ran = [own for own, gpu in GPUS.items() if not_run(engine, CATALOG.get(gpu), model) is None]
    assert ran == published.split()


def test_the_message_names_engine_format_device_and_what_is_missing():
    why = not_run("vllm", CATALOG.get("t4"), with_formats(LLAMA, weights="mxfp4"))
    assert why == "vllm runs weights in mxfp4 from compute capability 8.0 on, and t4 has 7.5"
    awq = with_formats(LLAMA, weights="awq")
    why = awq_not_run("vllm", CATALOG.get("v100"), awq)
    assert (
        why == "vllm runs weights of AWQ from compute capability 7.5 on, and v100-sxm2-16gb has 7.0"
    )
    assert awq_not_run("vllm", CATALOG.get("t4"), awq) is None
    assert awq_not_run("vllm", CATALOG.get("v100"), LLAMA) is None
    why = not_run("sglang", CATALOG.get("mi250"), with_formats(LLAMA, cache="int8"))
    assert why == "sglang runs caches in int8 on no GPU of AMD, as mi250 is"
    why = not_run("vllm", CATALOG.get("mi250"), with_formats(LLAMA, weights="fp8"))
    assert why == "vllm runs weights in fp8 on AMD's cdna3, cdna4, rdna4 alone, and mi250 is cdna2"


def test_formats_of_an_architecture_also_run_on_newer_ones():
    assert [CAPABILITY[own] for own in GPUS] == sorted(CAPABILITY[own] for own in GPUS)
    models = [with_formats(LLAMA, weights=name) for name in FORMATS if name not in ("tf32", "nf4")]
    models += [with_formats(LLAMA, cache=name) for name in CACHE]
    for engine in ENGINES:
        for model in models:
            runs = [not_run(engine, device, model) is None for device in NVIDIA]
            assert runs == sorted(runs)


def test_engines_without_a_table_and_processors_are_not_judged():
    model = with_formats(LLAMA, weights="nvfp4")
    for engine, device in (("llama.cpp", "k80"), ("other", "k80"), ("vllm", "epyc-9654")):
        assert not_run(engine, CATALOG.get(device), model) is None


def test_formats_of_experts_count_and_names_of_the_table_exist():
    """Only the experts of GPT-OSS are in MXFP4."""
    own = named_language_model("gpt-oss-20b")
    assert "mxfp4" in (not_run("vllm", CATALOG.get("v100"), own) or "")
    names = {name for table in ENGINES.values() for name in table}
    known = {"any", "awq", "gguf", *FORMATS, *(f"cache-{name}" for name in CACHE)}
    assert names <= known


def test_other_catalogues_write_architectures_otherwise():
    device = CATALOG.get("radeon rx 7900 xtx")
    assert device.architecture == "rdna 3.0"
    assert not_run("vllm", device, LLAMA) is None
    assert not_run("vllm", device, with_formats(LLAMA, weights="fp8")) is not None
