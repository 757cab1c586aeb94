"""Commands of engines and of their benchmarks as requests."""

import pytest
from pydantic import ValidationError

from forerun.service.requests.commands import IGNORED, UNKNOWN, fields_of
from forerun.service.schemas.serving import EXAMPLE_COMMAND, LlmEstimateIn
from tests.service.answered import content_of, problem_of

GGUF = "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"


def asked(command, **given):
    return LlmEstimateIn.model_validate({"device": "h100", "command": command, **given})


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        (
            "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len=8192 "
            "--gpu-memory-utilization 0.95 --no-enable-chunked-prefill",
            {
                "model.name": "Qwen/Qwen3-32B",
                "engine.name": "vllm",
                "parallelism.tensor": "2",
                "engine.max_request_tokens": "8192",
                "engine.memory_share": "0.95",
                "engine.chunked_prefill": False,
            },
        ),
        ("CUDA_VISIBLE_DEVICES=0 vllm serve --enforce-eager qwen3-8b", {"engine.graphs": False}),
        (
            "python -m vllm.entrypoints.openai.api_server --model qwen3-8b -tp 4 -pp 2",
            {"parallelism.tensor": "4", "parallelism.pipeline": "2"},
        ),
        (
            "docker run --gpus all -p 80:80 vllm/vllm-openai:v0.15.1 --model qwen3-8b",
            {"engine.version": "0.15.1", "model.name": "Qwen/Qwen3-8B"},
        ),
        (
            "vllm serve qwen3-30b-a3b --tensor-parallel-size 4 --enable-expert-parallel",
            {"parallelism.expert": 4},
        ),
        (
            "vllm bench serve --random-prefix-len 100 --random-input-len 300 "
            "--random-output-len 64",
            {"input_tokens": 400.0, "cached_share": 0.25, "output_tokens": 64.0},
        ),
        (
            "vllm bench serve --temperature 0.8 --top-p 0.95",
            {"engine.sampling": "top_p"},
        ),
        (
            "python3 -m sglang.launch_server --model-path qwen3-8b --tp 2 --dp 2 \\\n"
            "  --mem-fraction-static 0.85 --chunked-prefill-size -1",
            {
                "engine.name": "sglang",
                "workers": 2,
                "parallelism.tensor": "2",
                "engine.chunked_prefill": False,
            },
        ),
        (
            "sglang serve --model deepseek-ai/DeepSeek-V3 --tp 16 --dp 4 --enable-dp-attention",
            {"parallelism.tensor": 4, "parallelism.attention_data": "4"},
        ),
        (
            "sglang serve --model deepseek-ai/DeepSeek-V3 --speculative-num-draft-tokens 4 "
            "--scheduler-recv-interval 10",
            {"engine.draft_tokens": 3, "engine.hold_iterations": 5.0},
        ),
        (
            "sglang serve --model qwen3-8b --speculative-num-draft-tokens 64 "
            "--speculative-num-steps 5 --speculative-eagle-topk 8",
            {"engine.draft_tokens": 5},
        ),
        (
            "python -m sglang.bench_serving --backend sglang --random-input 512 "
            "--random-output 128",
            {"input_tokens": 256.0, "num_prompts": 1000},
        ),
        (
            f"./llama-bench -m models/{GGUF} -p 512 -n 128 -ngl 99",
            {
                "engine.name": "llama.cpp",
                "model.name": "Meta-Llama-3.1-8B-Instruct",
                "model.quantization": "q4_k_m",
                "input_tokens": 512.0,
                "output_tokens": 128.0,
                "concurrency": 1,
            },
        ),
        (
            "llama-server -hf unsloth/Llama-3.1-8B-Instruct-GGUF:Q8_0 -c 8192 -np 2 -ngl 33",
            {
                **{"model.quantization": "q8_0", "engine.max_request_tokens": 4096},
                **{"engine.max_sequences": 2, "concurrency": 2},
            },
        ),
        (
            "vllm serve someone/Qwen3-8B-AWQ",
            {"model.quantization": "awq", "model.name": "Qwen3-8B"},
        ),
    ],
)
def test_options_are_fields(command, paths):
    content, *_ = fields_of(command)
    for path, value in paths.items():
        found = content
        for step in path.split("."):
            found = found[step]
        assert found == value, path


@pytest.mark.parametrize(
    "options", ["--top-p 0.95", "--temperature 0.8", "--temperature 1 --top-p 1"]
)
def test_the_benchmark_is_greedy_where_it_does_not_ask_for_top_p(options):
    content, notes, _ = fields_of(f"vllm bench serve {options}")
    assert "engine" not in content
    assert not [note for note in notes if note.startswith(UNKNOWN)]


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("4096", 4096), ("4k", 4000), ("4K", 4096), ("1.5k", 1500), ("2M", 2 * 1024**2)],
)
def test_lengths_may_have_a_suffix_as_vllm_takes_them(written, tokens):
    command = f"vllm serve qwen3-8b --max-model-len {written} --max-num-batched-tokens={written}"
    own = asked(command, isl=9, osl=9, concurrency=1)
    assert (own.engine.max_request_tokens, own.engine.max_batched_tokens) == (tokens, tokens)


@pytest.mark.parametrize("length", ["auto", "-1"])
def test_the_length_of_the_model_is_no_limit(length):
    content, *_ = fields_of(f"vllm serve qwen3-8b --max-model-len {length}")
    assert "max_request_tokens" not in content["engine"]


@pytest.mark.parametrize("server", ["vllm serve {} qwen3-8b", "sglang serve --model qwen3-8b {}"])
@pytest.mark.parametrize(
    ("switch", "cached"),
    [
        ("--enable-prefix-caching", True),
        ("--no-enable-prefix-caching", False),
        ("--disable-radix-cache", False),
    ],
)
def test_prefix_caches_are_read(server, switch, cached):
    server, shared = server.format(switch), "vllm bench serve --random-prefix-len 1024"
    content, notes, _ = fields_of(f"{server} && {shared}")
    assert content["model"]["name"] == "Qwen/Qwen3-8B"
    assert content.get("cached_share") == (0.5 if cached else None)
    assert content["input_tokens"] == 2048.0
    said = f"{IGNORED}{switch}" if cached else f"{switch}: the prefix"
    assert any(note.startswith(said) for note in notes)
    assert fields_of(server)[1] == [f"{IGNORED}{switch}"]


def test_a_server_and_its_benchmark_are_one_question():
    own = LlmEstimateIn.model_validate(EXAMPLE_COMMAND)
    assert (own.model.name, own.parallelism.tensor) == ("Qwen/Qwen3-32B", 2)
    assert (own.input_tokens, own.output_tokens, own.at_once) == (1024.0, 256.0, 200.0)


def test_other_fields_replace_what_a_command_says():
    own = asked(EXAMPLE_COMMAND["command"], concurrency=8, tp_size=4, isl=99)
    assert (own.concurrency, own.at_once, own.num_prompts) == (8.0, None, None)
    assert (own.parallelism.tensor, own.input_tokens) == (4, 99.0)
    own = asked(
        "vllm serve qwen3-8b --max-num-seqs 7", model="qwen3-32b", isl=9, osl=9, concurrency=1
    )
    assert (own.model.name, own.engine.max_sequences) == ("qwen3-32b", 7)


def test_the_default_benchmark_is_a_burst_and_says_so():
    own = asked("vllm serve qwen3-8b --port 80 --unheard-of\nvllm bench serve")
    assert (own.at_once, own.input_tokens, own.output_tokens) == (1000.0, 1024.0, 128.0)
    assert own.notes == (
        f"{IGNORED}--port",
        f"{UNKNOWN}--unheard-of",
        "--num-prompts 1000, --random-input-len 1024, --random-output-len 128, as the benchmark "
        "does by default",
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("vllm serve qwen3-8b --cpu-offload-gb 10", "memory of the host"),
        ("vllm serve qwen3-8b --enable-lora", "adapters"),
        ("ls -la", "no command that is read"),
        ("vllm serve 'qwen3-8b", "within quotes"),
        (f"llama-server -m {GGUF} -ngl 20", "divided between GPU and processor"),
        ("vllm bench serve --random-range-ratio much", "no such number"),
        ("vllm bench serve --random-input-len -5 --random-prefix-len 5", "no such number"),
        ("vllm serve qwen3-8b --speculative-config " + 4000 * "[", "num_speculative_tokens"),
        ("sglang serve --dp inf", "no such number"),
        ("vllm serve --max-model-len 1.5K", r"takes no decimals here, but 1\.5k"),
    ],
)
def test_what_changes_times_and_is_not_answered_is_refused(command, why):
    with pytest.raises(ValidationError, match=why):
        asked(command, model="qwen3-8b", isl=9, osl=9, concurrency=1)


def test_a_command_over_http(client):
    content = content_of(client.post("/v1/llm/estimate", json=EXAMPLE_COMMAND))
    assert content["deployment"]["pool"]["parallelism"]["tensor"] == 2
    assert "200 requests that arrive at once" in " ".join(content["limits"])
    refused = client.post("/v1/llm/estimate", json={"device": "h100", "command": "ls"})
    problem_of(refused, 422, "command")


@pytest.mark.parametrize(
    ("command", "pointer", "said"),
    [
        ("vllm serve qwen3-8b -tp x && vllm bench serve", "#/command", "command: -tp: Input"),
        ("vllm serve qwen3-8b -tp 3 && vllm bench serve", "#/command", "Tensor parallel 3"),
        ("vllm serve qwen3-999b && vllm bench serve", "#/command", "No language model"),
        (
            "vllm serve qwen3-8b",
            "#/input_tokens",
            "input_tokens is missing, which vllm serve needs",
        ),
        ("llama-cli -m qwen3-8b -c 10 -n 20 -p 9", "#/command", "request of 29 tokens"),
    ],
)
def test_problems_name_the_option_of_the_command(client, command, pointer, said):
    answer = client.post("/v1/llm/estimate", json={"device": "h100", "command": command})
    problem = answer.json()
    assert answer.status_code in (404, 422)
    assert said in problem["detail"]
    assert problem["errors"][0]["pointer"] == pointer


def test_a_field_is_named_though_there_is_a_command(client):
    asked = {"device": "h100", "command": "vllm serve qwen3-8b && vllm bench serve", "tp": 3}
    problem = client.post("/v1/llm/estimate", json=asked).json()
    assert problem["errors"][0]["pointer"] == "#/tp"


@pytest.mark.parametrize(("rate", "load"), [(100, {"concurrency": 4}), (1, {"requests_per_s": 1})])
def test_arrivals_with_a_limit_are_the_slower_of_both_loads(adapting, rate, load):
    lengths = {"device": "h100", "isl": 1024, "osl": 128}
    bench = f"vllm bench serve --request-rate {rate} --max-concurrency 4"
    serve = {"device": "h100", "command": f"vllm serve qwen3-8b && {bench}"}
    own = adapting.post("/v1/llm/estimate", json=serve).json()
    other = adapting.post("/v1/llm/estimate", json=lengths | {"model": "qwen3-8b"} | load).json()
    assert own["metrics"] == other["metrics"]
    answered = "fewer" if "concurrency" in load else "more"
    said = f"--request-rate {rate} and --max-concurrency 4: 4 in flight answer {answered}, so"
    assert said in own["deployment"]["chosen"][-1]


def test_a_request_longer_than_the_engine_takes_is_refused(client):
    asked = {"model": "qwen3-8b", "device": "h100", "isl": 9000, "osl": 100, "concurrency": 1}
    answer = client.post("/v1/llm/estimate", json=asked | {"max_model_len": 8192})
    problem_of(answer, 422, "9,100 tokens")


@pytest.mark.parametrize("option", ["--max-num-seqs", "--tensor-parallel-size", "--num-prompts"])
def test_an_option_without_its_value_is_refused(option):
    with pytest.raises(Exception, match="has no value"):
        fields_of(f"vllm bench serve --model qwen3-8b {option}")


def test_a_second_model_and_lengths_that_vary_are_noted():
    _, notes, _ = fields_of("vllm serve qwen3-8b && vllm bench serve --model llama-3.1-8b")
    assert any("not" in note and "llama" in note.lower() for note in notes)
    _, notes, _ = fields_of("python -m sglang.bench_serving --model qwen3-8b --random-input 1024")
    assert any("512 on average" in note for note in notes)
