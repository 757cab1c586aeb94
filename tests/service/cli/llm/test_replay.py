"""`forerun llm replay`."""

import json

import pytest

from forerun.data.errors import BadRequest, BadTrace, InputError
from forerun.service.cli import app

ROWS = "arrival_s,input_tokens,output_tokens\n0.0,500,100\n0.5,300,200\n30.0,100,50\n"
DEPLOYMENT = ("--device", "h100", "--tp", "1")


@pytest.fixture
def run(home, capsys):
    def command(*words):
        app(["llm", "replay", "llama-3.1-8b", *map(str, words)], standalone_mode=False)
        return capsys.readouterr().out

    return command


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(ROWS)
    return path


def test_json_is_the_answer_of_the_service(run, trace):
    found = json.loads(run(trace, *DEPLOYMENT, "--json"))
    assert found["requests"] == 3
    assert found["device"]["name"] == "h100-sxm-80gb"


def test_a_trace_may_end_early(run, trace):
    found = json.loads(run(trace, *DEPLOYMENT, "--until", "10", "--json"))
    assert found["requests"] == 2


def test_the_table_has_the_percentiles_and_what_they_rest_on(run, trace):
    printed = run(trace, *DEPLOYMENT)
    for words in ("p99", "time to first token", "requests/s", "serving runs"):
        assert words in printed


@pytest.mark.parametrize("option", ["--isl", "--osl", "--concurrency", "--request-rate"])
def test_options_that_the_trace_replaces_are_neither_listed_nor_taken(run, trace, capsys, option):
    with pytest.raises(Exception, match=f"No such option: {option}"):
        run(trace, *DEPLOYMENT, option, "3")
    listed = run("--help")
    assert "--tp" in listed
    assert option not in listed


def test_what_is_wrong_names_the_option_that_was_typed(run, trace):
    with pytest.raises(BadRequest, match=r"^--max-num-seqs: Input"):
        run(trace, *DEPLOYMENT, "--max-num-seqs", "0")


def test_a_wrong_line_is_named(run, trace):
    trace.write_text(ROWS + "1.0,few,2\n")
    with pytest.raises(BadTrace, match="line 5"):
        run(trace, *DEPLOYMENT)


def test_several_devices_and_unknown_traces_are_refused_with_what_there_is(run, trace):
    with pytest.raises(InputError, match="one device is answered at a time, 2 are given"):
        run(trace, "--device", "h100,a100")
    with pytest.raises(BadTrace, match=r"'splitwise_com'.*there are splitwise_code"):
        run("splitwise_com", *DEPLOYMENT)


def test_one_worker_has_none_to_spread_requests_over(run, trace):
    with pytest.raises(
        BadRequest, match="one worker to send requests to: leave --least-loaded out"
    ):
        run(trace, *DEPLOYMENT, "--least-loaded")
    assert run(trace, *DEPLOYMENT, "--workers", "2", "--least-loaded")
