"""Traces: packaged ones, the user's own, and the errors of invalid ones."""

import json

import numpy as np
import pytest

from forerun.data.errors import BadTrace
from forerun.data.language_models import traces
from forerun.data.language_models.traces import PACKAGED, named_trace, read_trace

ROW = {"arrival_s": 1.5, "input_tokens": 10, "output_tokens": 3}


@pytest.mark.parametrize("name", PACKAGED)
def test_every_packaged_trace_is_in_order_and_has_lengths(name):
    requests = named_trace(name)
    assert len(requests) >= 512
    assert (np.diff(requests.arrival_s) >= 0).all()
    assert requests.input_tokens.min() >= 1
    assert requests.output_tokens.min() >= 1


def test_the_hour_of_conversations_is_the_published_one():
    requests = named_trace("splitwise_conv")
    assert len(requests) == 19_366
    assert requests.arrival_s[-1] == pytest.approx(3501.72, abs=0.01)
    assert requests.load().requests_per_s == pytest.approx(5.53, abs=0.01)


def test_requests_of_a_family_are_those_of_its_tokenizer():
    assert named_trace("lmsys_05_llama").input_tokens.sum() == 63_148
    assert named_trace("lmsys_05_mistral").input_tokens.sum() == 75_084


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BadTrace, match=r"'nothing'.*there are splitwise_code"):
        named_trace("nothing")


def test_csv_lines_and_rows_give_the_same_requests(tmp_path):
    rows = [{**ROW, "arrival_s": 2.0, "note": "later"}, ROW]
    (tmp_path / "a.csv").write_text(
        "arrival_s,input_tokens,output_tokens,note\n2.0,10,3,later\n1.5,10,3,\n"
    )
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    files = [tmp_path / name for name in ("a.csv", "a.jsonl")]
    for source in (rows, *files, *(file.read_text() for file in files), read_trace(rows).rows()):
        requests = read_trace(source)
        assert requests.arrival_s.tolist() == [1.5, 2.0]
        assert requests.input_tokens.tolist() == [10, 10]
        assert requests.output_tokens.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_tokens": 0}, "request 2.*input_tokens is 0"),
        ({"input_tokens": 1.5}, "input_tokens is 1.5"),
        ({"output_tokens": 1e9}, "output_tokens is 1e\\+09"),
        ({"arrival_s": "soon"}, "arrival_s is 'soon', which is not a number"),
        ({"arrival_s": float("nan")}, "arrival_s is 'nan'"),
        ({"arrival_s": True}, "not a number"),
        ({"output_tokens": None}, "output_tokens is missing"),
    ],
)
def test_a_bad_field_is_named_with_its_request(change, said):
    with pytest.raises(BadTrace, match=said):
        read_trace([ROW, {**ROW, **change}])


def test_files_that_are_not_traces_are_refused(tmp_path):
    for name, content, said in (
        ("a.csv", b"", "no request"),
        ("b.csv", b"arrival_s,input_tokens\n1,2\n", "line 2.*output_tokens is missing"),
        ("c.jsonl", b"[1]\n", "line 1.*not an object"),
        ("d.jsonl", b"{\n", "line 1.*not a JSON object"),
        ("e.csv", b"\xff\xfe\x00", "UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadTrace, match=said):
            read_trace(tmp_path / name)
    with pytest.raises(BadTrace, match="No such file"):
        read_trace(tmp_path / "none.csv")


def test_traces_over_a_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "MOST_REQUESTS", 2)
    with pytest.raises(BadTrace, match=r"request 3.*at most 2 requests"):
        read_trace([ROW] * 3)
    monkeypatch.setattr(traces, "MOST_BYTES", 8)
    (tmp_path / "a.csv").write_text("arrival_s,input_tokens\n")
    with pytest.raises(BadTrace, match="larger than"):
        read_trace(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:16:47.1805900,396,109\n",
        ),
        (
            "azure_2024.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2024-05-12 00:00:00.100000+00:00,374,44\n2024-05-12 00:01:00.600000+00:00,396,109\n",
        ),
        (
            "mooncake.jsonl",
            '{"timestamp": 1000, "input_length": 374, "output_length": 44, "hash_ids": [0]}\n'
            '{"timestamp": 61500, "input_length": 396, "output_length": 109, "hash_ids": [1]}\n',
        ),
        (
            "burst_gpt.csv",
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,ChatGPT,374,44,418,API log\n65.5,GPT-4,396,109,505,API log\n",
        ),
    ],
)
def test_published_traces_are_read_in_their_own_form(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    found = read_trace(path)
    assert found.arrival_s[1] - found.arrival_s[0] == pytest.approx(60.5, abs=1e-5)
    assert found.input_tokens.tolist() == [374, 396]
    assert found.output_tokens.tolist() == [44, 109]


def test_an_invalid_date_is_named(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n")
    with pytest.raises(BadTrace, match=r"line 2.*TIMESTAMP.*yesterday"):
        read_trace(path)


def test_lengths_may_have_short_names():
    row = {"arrival_s": 0.0, "isl": 500, "osl": 20}
    found = read_trace([row, {**row, "input_tokens": 7}])
    assert found.input_tokens.tolist() == [500, 7]
    assert found.output_tokens.tolist() == [20, 20]
