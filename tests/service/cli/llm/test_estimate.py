"""`forerun llm`: one command for several devices, and what is supported."""

import json
from functools import partial

import pytest
from rich.console import Console

from forerun.data.errors import (
    BadRequest,
    InputError,
    UnanswerableQuery,
    UnknownDevice,
    UnreadableModel,
)
from forerun.service.cli import app
from forerun.service.cli.llm import table
from forerun.service.schemas.llm.deployment import PrefillIn
from tests.service.answers.llm.predictors import LLAMA

LENGTHS = ("--isl", "1024", "--osl", "256", "--concurrency", "32")


@pytest.fixture
def run(home, capsys):
    def command(*words):
        app(["llm", *map(str, words)], standalone_mode=False)
        return capsys.readouterr().out

    return command


def test_several_devices_stand_side_by_side(run):
    printed = run("estimate", "llama-3.1-8b", "--device", "h100,a100", "--device", "l40s", *LENGTHS)
    lines = printed.splitlines()
    heading = next(line for line in lines if "h100-sxm-80gb" in line)
    assert heading.index("h100-sxm-80gb") < heading.index("a100-sxm-80gb") < heading.index("l40s")
    for row in ("time to first token", "time per output token", "memory", "power", "price"):
        assert sum(line.startswith(row) for line in lines) == 1
    assert "the smallest that fits" in printed
    assert "list price" in printed


def test_rare_arrivals_have_no_interval_where_they_are_given_and_a_reason_where_it_is_missing(run):
    load = ("--isl", "1024", "--osl", "256", "--request-rate", "0.001")
    lines = run("estimate", "llama-3.1-8b", "--device", "h100", *load).splitlines()
    rows = {line[:25].strip(): line for line in lines}
    assert " to " not in rows["requests per second"].partition("C")[0]
    assert " to " in rows["time per output token"]
    assert "no server with idle periods was measured" in " ".join(lines)


def test_reasons_name_the_options_of_the_command(run):
    load = ("--isl", "1024", "--osl", "256", "--num-prompts", "8")
    for more in ((), ("--explain",), ("--device", "h100")):
        lines = run("estimate", "llama-3.1-8b", "--device", "rtx-4090", *load, *more)
        assert "give --usd-per-device-hour" in lines
        assert "usd_per_device_hour" not in lines
    assert "usd_per_device_hour" in run(
        "estimate", "llama-3.1-8b", "--device", "rtx-4090", *load, "--json"
    )


def test_json_is_the_answer_of_the_service(run):
    answer = json.loads(run("estimate", "llama-3.1-8b", "--device", "h100", *LENGTHS, "--json"))
    assert answer["device"]["name"] == "h100-sxm-80gb"
    assert answer["deployment"]["pool"]["parallelism"]["tensor"] == 1
    several = json.loads(run("estimate", "llama-3.1-8b", "--device", "h100,l4", *LENGTHS, "--json"))
    assert [one["device"]["name"] for one in several["answers"]] == ["h100-sxm-80gb", "l4"]
    assert several["answers"][0]["deployment"] == answer["deployment"]
    twice = json.loads(run("estimate", "llama-3.1-8b", "--device", "h100,H100", *LENGTHS, "--json"))
    assert twice["deployment"] == answer["deployment"]


def test_devices_that_can_be_answered_are_and_the_others_are_one_line(run, capsys):
    words = ("estimate", "llama-3.1-8b", "--device", "h100,gaudi2", *LENGTHS)
    assert "time to first token" in run(*words)
    several = json.loads(run(*words, "--json"))
    assert [one["device"]["name"] for one in several["answers"]] == ["h100-sxm-80gb"]
    assert "GPU" in several["unanswered"]["gaudi2"]
    assert app(["llm", *map(str, words)], standalone_mode=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("not answered on gaudi2: ")
    with pytest.raises(InputError, match="GPU"):
        run("estimate", "llama-3.1-8b", "--device", "gaudi2", *LENGTHS)


def test_a_misspelt_device_is_one_line_and_the_others_are_answered(run, capsys):
    words = ("estimate", "llama-3.1-8b", "--device", "h101,h100", *LENGTHS)
    several = json.loads(run(*words, "--json"))
    assert [one["device"]["name"] for one in several["answers"]] == ["h100-sxm-80gb"]
    assert app(["llm", *map(str, words)], standalone_mode=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("not answered on h101: ")
    assert "Did you mean" in line
    with pytest.raises(UnknownDevice, match="h101"):
        run("estimate", "llama-3.1-8b", "--device", "h101,l5", *LENGTHS)


def test_options_reach_the_deployment(run):
    options = ("--tp", 2, "--pp", 2, "--workers", 3, "--engine", "sglang", "--max-num-seqs", 16,
               "--no-graphs", "--usd-per-device-hour", 2, "--kv-cache-dtype", "fp8",
               "--prefill-workers", 2, "--prefill-tensor", 4)  # fmt: skip
    words = ("estimate", "llama-3.1-8b", "--device", "h100", *LENGTHS, *options, "--json")
    answer = json.loads(run(*words))
    deployment = answer["deployment"]
    assert answer["device_count"] == 3 * 4 + 2 * 4
    assert deployment["pool"]["parallelism"] == {
        "tensor": 2, "pipeline": 2, "attention_data": 1, "expert": 1,
    }  # fmt: skip
    engine = deployment["engine"]
    assert (engine["name"], engine["max_sequences"], engine["graphs"]) == ("sglang", 16, False)
    assert deployment["price"] == {"usd_per_device_hour": 2.0, "source": "as given"}
    assert answer["model"]["cache_bytes_per_token"] == 131_072 / 2


def test_a_configuration_is_read_from_its_file_or_folder(run, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    words = ("--device", "h100", *LENGTHS, "--json")
    answer = json.loads(run("estimate", folder, *words))
    assert json.loads(run("estimate", folder / "config.json", *words)) == answer
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    assert json.loads(run("estimate", folder, *words))["model"]["weights"] == "fp8"


def test_a_misspelt_field_of_the_configuration_is_a_line(run, tmp_path, capsys):
    heads = LLAMA["num_key_value_heads"]
    misspelt = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    (tmp_path / "config.json").write_text(json.dumps({**misspelt, "num_keyvalue_heads": heads}))
    app(["llm", "estimate", str(tmp_path), "--device", "h100", *LENGTHS], standalone_mode=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert "num_keyvalue_heads (did you mean num_key_value_heads?)" in line


def test_explain_shows_parts_and_limits(run):
    words = ("estimate", "llama-3.1-8b", "--device", "h100", *LENGTHS)
    assert "decode attention" not in run(*words)
    assert "decode attention" in run(*words, "--explain")


def test_support_lists_models_and_what_was_measured(run):
    assert "meta-llama/Meta-Llama-3.1-8B" in json.loads(run("support", "--json"))["models"]
    assert "power_w measured on b200-sxm-180gb, h100-sxm-80gb" in run("support")


def test_parameters_are_counted_and_tokens_of_answers_are_what_is_priced(run):
    load = ("--isl", "1024", "--osl", "256", "--concurrency", "8", "--tp-size", "1")
    printed = run("estimate", "Qwen/Qwen3-30B-A3B", "--device", "h100", *load)
    assert "30.5 billion parameters, of which a token uses 3.35" in printed
    assert "price of a million output tokens" in printed
    assert "energy of an output token" in printed
    dense = run("estimate", "llama-3.1-8b", "--device", "h100", *load, "--prefill-workers", "1")
    assert "8.03 billion parameters\n" in dense
    assert "chosen: workers for prompts: tensor parallel 1, the smallest that fits" in dense


def test_what_is_wrong_in_a_configuration_names_its_file(run, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": "x"})
    )
    with pytest.raises(UnreadableModel, match=rf"{file}: num_hidden_layers is 'x'"):
        run("estimate", file, "--device", "h100", *LENGTHS)


def test_degrees_of_workers_for_prompts_mean_one_worker_as_over_http(run):
    """`prefill.workers` of POST /v1/llm/estimate is 1 where it is left out."""
    words = ("estimate", "llama-3.1-8b", "--device", "h100", *LENGTHS, "--prefill-tensor", 2)
    pool = json.loads(run(*words, "--json"))["deployment"]["prefill"]
    assert (pool["workers"], pool["parallelism"]["tensor"]) == (1, 2)
    one = run(*words, "--prefill-workers", 1, "--json")
    assert json.loads(one)["deployment"]["prefill"] == pool
    assert PrefillIn().workers == 1


def test_whisper_takes_no_length_of_a_prompt(run):
    load = ("estimate", "whisper-tiny", "--device", "l4", "--osl", 50, "--concurrency", 2, "--json")
    without, given = (json.loads(run(*load, *own)) for own in ((), ("--isl", 1500)))
    assert without == given
    assert "input_tokens 1,500, to which" in " ".join(without["deployment"]["chosen"])
    with pytest.raises(BadRequest, match="--input-tokens is missing"):
        run("estimate", "t5-small", *load[2:])


SOUND = ("--isl", "4", "--osl", "50", "--concurrency", "1")


def test_an_encoder_decoder_passes_its_encoder_once_and_its_decoder_for_each_token(run):
    """Turbo has the encoder of large-v3 and 4 of its 32 layers of the decoder."""
    answers = {
        name: json.loads(run("estimate", name, "--device", "l4", *SOUND, "--json"))["metrics"]
        for name in ("whisper-large-v3", "whisper-large-v3-turbo")
    }
    large, turbo = answers.values()
    assert turbo["ttft_service_ms"]["value"] > 0.6 * large["ttft_service_ms"]["value"]
    assert turbo["tpot_ms"]["value"] < 0.3 * large["tpot_ms"]["value"]
    assert {one["grade"] for one in large.values()} == {"C"}
    printed = run("estimate", "whisper-large-v3", "--device", "l4", *SOUND, "--explain")
    assert "seconds of audio per second, 30 per request" in printed
    assert (
        "input_tokens 1,500, to which the audio of a request is padded or cut; the 4 given"
        in printed
    )
    own = run("estimate", "whisper-tiny", "--device", "l4", *SOUND[2:], "--isl", "1500")
    assert "are not used" not in own


@pytest.mark.parametrize(
    ("model", "lengths", "says"),
    [
        ("bart-base", (1025, 10), "prompts have 1,025 tokens, and the encoder takes 1,024"),
        ("bart-base", (10, 1025), "answers have 1,025 tokens, and the decoder writes 1,024"),
        ("bart-base", (1024, 1024), None),
        ("whisper-tiny", (1500, 449), "answers have 449 tokens, and the decoder writes 448"),
        ("whisper-tiny", (1500, 448), None),
        ("t5-small", (4000, 4000), None),
    ],
)
def test_each_half_of_an_encoder_decoder_has_its_own_limit(run, model, lengths, says):
    given, answer = lengths
    load = ("--isl", given, "--osl", answer, "--concurrency", 1)
    printed = json.loads(run("estimate", model, "--device", "h100", *load, "--json"))
    refused = [one["message"] for one in printed["limit_details"] if one["severity"] == "refusal"]
    assert refused == ([] if says is None else [says])
    assert printed["model"]["most_tokens"] is None, "no sum of both is a limit"


def test_the_engines_longest_request_is_that_of_the_decoder(run):
    """VLLM serves Whisper with --max-model-len 448, and its input has 1,500 tokens."""
    load = ("--device", "h100", "--osl", 100, "--isl", 1500, "--concurrency", 1)
    run("estimate", "whisper-tiny", *load, "--max-model-len", 448)
    with pytest.raises(BadRequest, match="A request of 449 tokens"):
        run("estimate", "whisper-tiny", *load, "--osl", 449, "--max-model-len", 448)


def test_an_encoder_decoder_is_refused_on_processors(run):
    with pytest.raises(
        UnanswerableQuery, match="t5 is an encoder-decoder, which is supported only on"
    ):
        run("estimate", "t5-small", "--device", "xeon-platinum-8380", *LENGTHS)


OPEN = ("--isl", "1024", "--osl", "256", "--tp", "1", "--request-rate")


def test_beyond_capacity_every_figure_says_that_it_is_of_the_capacity(run):
    """The exit code is 0, as of other answers that say why something is not known."""
    printed = run("estimate", "llama-3.1-8b", "--device", "h100", *OPEN, 500)
    rows = {line[:32].strip(): line for line in printed.splitlines()}
    for row in ("price of a million output tokens", "requests per second", "power of a device"):
        assert "at capacity" in rows[row]
    assert "not known" in rows["time to first token"]
    assert "those at its capacity" in printed
    several = run("estimate", "llama-3.1-8b", "--device", "h100,b200", *OPEN, 30)
    (price,) = [line for line in several.splitlines() if line.startswith("price of a million")]
    assert price.count("at capacity") == 1
    assert "not known: time to first token, request latency: 30 requests/s arrive" in several
    assert "keep up with the arrivals even at the lower end" in printed
    below = run("estimate", "llama-3.1-8b", "--device", "h100", *OPEN, 5)
    assert "at capacity" not in below
    near = run("estimate", "llama-3.1-8b", "--device", "h100", *OPEN, 20)
    assert "ttft_ms and request_latency_ms come from a queueing" in near
    assert "come from a queueing formula" not in below
    assert "such deployments" not in below


def test_beyond_capacity_each_of_several_devices_says_so_once(run):
    printed = run("estimate", "llama-3.1-8b", "--device", "h100,a100", *OPEN, 100)
    lines = [line for line in printed.splitlines() if "the queue grows without bound" in line]
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("not known: time to first token, request latency: 100 requests/s")
        assert "those at its capacity" in line
    (memory,) = [line for line in printed.splitlines() if "interval: memory of a device" in line]
    assert "not calibrated on measurements" in memory


def test_explain_shows_intervals_and_reasons_of_each_of_several_devices(run):
    words = ("estimate", "llama-3.1-8b", "--device", "h100,a100", *OPEN, 3)
    assert run(*words).count("no Poisson arrivals") == 0
    explained = run(*words, "--explain")
    for device in ("h100-sxm-80gb", "a100-sxm-80gb"):
        alone = explained.partition(f"\non {device}\n")[2].partition("where the time goes on")[0]
        assert "90 % interval" in alone
        assert alone.count("no Poisson arrivals") > 3
        assert f"where the time goes on {device}" in explained


def test_several_devices_say_why_a_metric_has_no_interval(run):
    printed = run("estimate", "llama-3.1-8b", "--device", "h100,b200", *OPEN, 20)
    assert "without an interval: memory of a device: extrapolated: the interval is an" in printed


def test_a_screen_without_room_for_intervals_shows_whole_figures_and_says_so(run, monkeypatch):
    words = ("estimate", "llama-3.1-8b", "--device", "h100,h200,a100", *OPEN, 5)
    wide = run(*words)
    assert "(" in next(line for line in wide.splitlines() if line.startswith("time per output"))
    narrow = partial(Console, highlight=False, width=100, force_terminal=True, no_color=True)
    monkeypatch.setattr(table, "screen", narrow)
    lines = run(*words).splitlines()
    row = next(line for line in lines if "time per output token" in line)
    assert "(" not in row
    assert "…" not in "".join(lines)
    assert table.NARROW in "".join(lines)


LONE = ("estimate", "llama-3.1-8b", "--device", "h100", "--isl", "1024", "--osl", "256")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--request-rate", "-1"), r"^--request-rate: Input should be greater than 0 \(given -1.0"),
        (("--requests-per-s=-1",), "^--requests-per-s: Input"),
        (
            ("--request-rate=3", "--max-concurrency", "5"),
            "^give one of --max-concurrency and",
        ),
        (("--request-rate", "inf"), "^--request-rate inf needs --num-prompts, the number"),
        ((), "^give one of --concurrency and --requests-per-s$"),
        (("--concurrency", "5", "--gpu-memory-utilization", "3"), "^--gpu-memory-utilization: In"),
        (("--concurrency", "5", "--backend", "foo"), "^--backend: Input"),
        (("--concurrency", "5", "--tp", "0"), "^--tp: Input"),
        (("--concurrency", "5", "--engine-version", "x"), "^--engine-version: not written as a"),
        (
            ("--concurrency", "5", "--draft-tokens", "3"),
            "^3 drafted tokens need --draft-acc",
        ),
        (
            ("--concurrency=5", "--num-gpus=3", "--tp", "2"),
            "^--num-gpus: 3 devices cannot be divided",
        ),
        (("--concurrency=5", "--device-count=3", "--tp", "2"), "^--device-count: 3 devices cannot"),
        (("--concurrency", "5", "--tp-size", "3"), "^--tp-size: Tensor parallel 3 does not divide"),
        (("--concurrency", "5", "--quantization", "fp3"), "^--quantization: Cannot read the"),
        (("--concurrency", "5", "--format", "fp3"), "^--format: Cannot read the"),
        (
            ("--concurrency=5", "--engine=llama.cpp", "--quantization=fp8"),
            "^--quantization: .*'fp8' is not known; known are .*q4_k_m",
        ),
    ],
)
def test_what_is_wrong_names_the_option_that_was_typed(run, words, said):
    with pytest.raises(InputError, match=said):
        run(*LONE, *words)


@pytest.mark.parametrize(
    ("count", "engine", "degrees"),
    [
        ("1", "vllm", ("--tp", "1")),
        ("4", "vllm", ("--tp", "4")),
        ("2", "llama.cpp", ("--tp", "1", "--pp", "2")),
    ],
)
def test_a_number_of_devices_alone_is_of_one_worker_also_where_that_does_not_fit(
    run, count, engine, degrees
):
    lone = ("llama-3.1-70b", "--device", "l4", "--isl", 512, "--osl", 64, "--concurrency", 1)
    asked = ("estimate", *map(str, lone), "--engine", engine)
    alone = run(*asked, "--device-count", count)
    (said,) = (line for line in alone.splitlines() if "the smallest that fits" in line)
    assert "parallel 8, the smallest" in said and said.endswith(f"device_count is {count}")
    assert "does not fit: it needs" in alone
    assert alone.replace(f"{said}\n", "") == run(*asked, *degrees)


def test_a_command_names_the_model_and_its_options(run):
    serve = "vllm serve qwen3-8b -tp"
    words = ("estimate", "--device", "h100", "--command")
    printed = run(*words, f"{serve} 1 && vllm bench serve --request-rate inf")
    assert printed.splitlines()[1].startswith("Qwen3-8B with vllm")
    with pytest.raises(BadRequest, match=r"^--command: -tp: Input should be a valid integer"):
        run(*words, f"{serve} x && vllm bench serve")


def test_lengths_that_are_missing_are_named_by_their_options(run):
    with pytest.raises(BadRequest, match=r"^--output-tokens is missing, which --isl needs$"):
        run(*LONE[:-2])
    with pytest.raises(BadRequest, match=r"^--input-tokens is missing, which --tp needs$"):
        run(*LONE[:4], "--tp", "2")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_why_first_tokens_wait_for_each_other_is_said_in_brief(run, engine):
    """SGLang reads prompts before it decodes, so the prompts of a closed loop come together."""
    words = ("--isl", 1024, "--osl", 256, "--engine", engine)
    lone = ("estimate", "llama-3.1-8b", "--device", "h100", *map(str, words), "--concurrency")
    said = "so each first token waits for all their prompts"
    assert (said in run(*lone, "8")) == (engine == "sglang")
    assert said not in run(*lone, "1")
    assert said not in run(*lone, "8", "--output-variation", "0.5")
