"""Results print, draw and become data frames; an option of a run is one line."""

from collections import Counter
from dataclasses import dataclass
from html.parser import HTMLParser
from inspect import signature
from io import StringIO
from typing import Annotated, TypedDict, get_type_hints

import pytest
from pydantic import Field
from rich.console import Console

import forerun
from forerun.data.errors import MissingExtra
from forerun.data.workload import TrainingSetup
from forerun.service.cli.options import run_options
from forerun.service.cli.questions.predict import predict as predict_command
from forerun.service.cli.questions.rank import rank as rank_command
from forerun.service.http.pages.run_form import training_options
from forerun.service.python.asking import predict
from forerun.service.python.run_options import (
    READING,
    LlmSizes,
    RunOptions,
    TrainingRun,
    keywords_of,
)
from forerun.service.python.view import View
from forerun.service.schemas.fields import Strict
from forerun.service.schemas.fields import options_of as request_of
from forerun.service.schemas.run_options import InferenceIn, ModelQuestion, RunIn, run_in
from tests.docs.documents import program

PROFILE = {"name": "mine", "alone": {"cpu.user_share": 1.0}}


class Tags(HTMLParser):
    """Checks that tags are closed in order, and counts them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def results(squeezenet):
    run = {"batch_size": 64, "precision": "amp"}
    return {
        "answer": forerun.predict(squeezenet, device="l4", **run),
        "answers": forerun.predict(squeezenet, device=["l4", "t4"], **run),
        "ranking": forerun.rank(squeezenet, device=["l4", "t4"], **run),
        "sweep": forerun.sweep(squeezenet, device="l4", **run),
        "comparison": forerun.compare(squeezenet, device=["l4", "t4"], batch_sizes=[1, 8]),
        "serving": forerun.llm(8e9, device="h100-sxm-80gb"),
        "neighbours": forerun.colocate(PROFILE, residents=[PROFILE | {"name": "other"}]),
        "devices": forerun.devices(kind="gpu"),
    }


def test_every_result_prints_as_html_and_as_a_data_frame(results):
    for name, result in results.items():
        view = result.view()
        assert str(result).startswith(view.title), name
        assert all(len(row) == len(view.headings) for row in view.rows), name
        tags = Tags(result._repr_html_()).seen
        assert tags.count("tr") == 1 + len(view.rows), name
        frame = result.to_pandas()
        assert len(frame) == len(list(result.records())) > 0, name
        assert isinstance(result.to_dict(), dict), name


def test_the_table_of_an_answer_has_its_figures_and_its_trust(results):
    answer, text = results["answer"], str(results["answer"])
    assert "light_squeezenet.onnx on l4 (batch 64, amp, inference, eager)" in text
    for estimate in (answer.latency_ms, answer.peak_memory_mib, answer.power_w, answer.energy_j):
        assert estimate.text() in text
        assert estimate.interval_text() in text
        assert estimate.grade_reason in text
    assert "fits: yes" in text
    assert f"limits of the answer: {len(answer.limits)}" in text
    html = answer._repr_html_()
    assert all(limit.replace("'", "&#x27;") in html for limit in answer.limits)


def test_columns_of_a_data_frame_have_units(results):
    row = results["answer"].to_pandas().iloc[0]
    answer = results["answer"]
    assert row["latency_ms"] == answer.latency_ms.value
    assert row["latency_ms_low"] == answer.latency_ms.low
    assert row["latency_ms_grade"] == answer.latency_ms.grade
    assert row["fits"]
    assert list(results["answers"].to_pandas()["device"]) == ["l4", "t4"]
    assert list(results["ranking"].to_pandas()["rank"]) == [1, 2]
    assert results["sweep"].to_pandas()["limit_w"].is_monotonic_increasing
    assert len(results["comparison"].to_pandas()) == 4


def test_html_holds_no_markup_of_the_content():
    view = View("<b>title</b>", ("<i>", "why"), [("<script>", "a & b")], ["<p>"], ["<li>"])
    html = view.html()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    assert "a &amp; b" in html
    assert Tags(html).seen.count("li") == 1


def test_no_text_of_a_wide_table_is_cut():
    long = "x" * 3_000
    assert long in View("t", ("a", "b"), [(long, long)]).text()
    assert View("t", ("a",), [], ["line"]).text() == "t\nline"


@pytest.mark.parametrize("columns", [30, 80, 100, 160, 400])
def test_no_console_is_too_narrow_for_a_figure(columns):
    why = "the interval was calibrated on 132 published setups of 3 sources, few of this kind"
    rows = [("latency_ms", "13.7 ms", "11 to 18 ms", "A", why), ("power_w", "411 W", "", "B", why)]
    written = StringIO()
    view = View("t", ("", "estimate", "90 % interval", "trust", "why"), rows)
    Console(file=written, width=columns).print(view.table())
    shown = written.getvalue()
    assert max(map(len, shown.splitlines())) <= columns
    words = Counter(word.strip(":,") for word in shown.split())
    assert (
        not Counter(word.strip(",") for row in rows for own in row for word in own.split()) - words
    )


@pytest.mark.slow
def test_every_result_draws_itself_on_given_axes(results):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    counts = {"answer": len(results["answer"].breakdown_ms), "answers": 2, "ranking": 2}
    for name, bars in counts.items():
        axes = Figure().add_subplot()
        assert results[name].plot(axes) is axes
        assert len(axes.patches) == bars, name
    axes = results["sweep"].plot(Figure().add_subplot())
    assert len(axes.texts) == len(results["sweep"])
    assert axes.get_xlabel() == "time of a run, ms"
    axes = results["comparison"].plot(Figure().add_subplot())
    assert len(axes.texts) == 4
    assert [t.get_text() for t in axes.get_yticklabels()] == ["l4", "t4"]
    energy = results["answers"].plot(Figure().add_subplot(), metric="energy_j")
    assert energy.get_xlabel() == "energy, J"
    widths = [patch.get_width() for patch in energy.patches]
    assert widths == [a.energy_j.value for a in results["answers"]]
    with pytest.raises(forerun.InputError, match="utilisation is not known for any of l4, t4"):
        results["answers"].plot(Figure().add_subplot(), metric="utilisation")


def test_without_matplotlib_a_plot_says_what_to_install(results, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="Drawing a result"):
        results["answers"].plot()


def test_a_result_cannot_be_changed(results):
    with pytest.raises(AttributeError):
        results["answer"].device = "t4"
    with pytest.raises(ValueError, match="frozen"):
        results["answer"].latency_ms.value = 1.0


@dataclass(frozen=True)
class Longer(TrainingSetup):
    """A set-up with one option more."""

    loss_scale: Annotated[int, Field(ge=1, le=9, description="scale of the loss")] = 2


def test_an_option_more_is_one_of_http_of_the_command_line_of_pages_and_of_python():
    training = request_of(Longer, Strict)
    assert training(loss_scale=3).loss_scale == 3
    own = training.model_json_schema()["properties"]["loss_scale"]
    assert (own["minimum"], own["maximum"], own["default"]) == (1, 9, 2)
    run = run_in(training, InferenceIn)
    query = run.model_json_schema()["properties"]["loss_scale"]
    assert query["description"] == "training: scale of the loss"
    (option,) = [own for own in run_options(run) if own.name == "loss_scale"]
    (shown,) = option.annotation.__metadata__
    assert (shown.default, shown.min, shown.max) == ("--loss-scale", 1, 9)
    assert shown.help == "training: scale of the loss"
    (field,) = [own for own in training_options(training) if own["name"] == "loss_scale"]
    assert (field["label"], field["low"], field["high"]) == ("Training: scale of the loss", 1, 9)
    assert (
        "    loss_scale: int | None"
        in program("reference")
        .stub(Run=get_type_hints(TypedDict("Run", keywords_of(run))))
        .splitlines()
    )


def test_every_option_of_http_is_one_of_python_and_of_its_stub():
    over_http = {"shapes" if name == "shape" else name for name in RunIn.model_fields}
    assert set(RunOptions.__annotations__) - set(READING) == over_http - set(READING)
    of_predict = {"device", "explain"}
    assert set(ModelQuestion.model_fields) == {*RunIn.model_fields, *of_predict}
    assert of_predict <= set(signature(predict).parameters)
    for verb in (predict_command, rank_command):
        assert set(RunIn.model_fields) <= set(signature(verb).parameters)
    generator = program("reference")
    own = {each.__name__: get_type_hints(each) for each in (RunOptions, LlmSizes, TrainingRun)}
    assert generator.STUB.read_text() == generator.stub(**own)
