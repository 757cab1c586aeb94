"""What is taken from the headers of a request, and the stages of the work on it."""

import pytest

from forerun.service.requests.record import RequestRecord, continued, current, stage, trace_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def identified(text: str) -> RequestRecord:
    return RequestRecord.of([(b"x-request-id", text.encode("latin-1"))], staged=False)


@pytest.mark.parametrize("text", ["abc", "7f3c-11/a.b:c+d=@x_1", "a" * 128])
def test_a_sane_identifier_is_kept(text):
    assert identified(text).request_id == text


@pytest.mark.parametrize(
    "text", ["", "a" * 129, "a b", "a\nb", '"a"', "-a", "é", f"fr_0123456789ab_{'x' * 43}"]
)
def test_any_other_identifier_and_a_key_are_replaced(text):
    made = identified(text).request_id
    assert len(made) == 16 and made != identified(text).request_id


def test_a_traceparent_names_the_trace_and_the_span():
    assert trace_parent(f"00-{TRACE}-{SPAN}-01") == (TRACE, SPAN, 1)
    assert trace_parent(f"cc-{TRACE}-{SPAN}-00-more") == (TRACE, SPAN, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_an_invalid_traceparent_is_ignored(text):
    assert trace_parent(text) is None


def test_stages_are_recorded_only_where_they_are_wanted():
    without, record = RequestRecord("a"), RequestRecord("b", stages=[])
    for own in (without, record):
        with continued(own), stage("predict"):
            assert current() is own
    assert without.stages is None
    assert record.stages is not None
    ((name, start_ns, end_ns),) = record.stages
    assert name == "predict" and start_ns <= end_ns


def test_a_stage_ends_also_where_the_work_fails():
    record = RequestRecord("a", stages=[])
    with pytest.raises(ZeroDivisionError), continued(record), stage("predict"):
        raise ZeroDivisionError
    assert [own.name for own in record.stages or ()] == ["predict"]
