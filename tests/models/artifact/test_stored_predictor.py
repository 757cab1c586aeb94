"""Predictors in folders: names of files, what is refused and in which words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from forerun.data.errors import BadArtifact
from forerun.models.artifact.sealed_folder import ALLOWED, seal
from forerun.models.artifact.stored_predictor import (
    FORMAT,
    StoredPredictor,
    contained,
    load_part,
    stored_name,
)
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.catalog import PREDICTORS, predictor_class
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.router import Router


@dataclass(frozen=True)
class Toy(StoredPredictor):
    """Fields of every kind that is stored in files or folders of its own."""

    name: ClassVar[str] = "toy"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features": ("width", "depth")}
    seed: int = 0
    bags: Mapping[tuple[str, str], BoosterBag] = field(default_factory=dict)
    bag: BoosterBag | None = None
    onnx: bytes = b""
    base: Constant = field(default_factory=Constant)


TOY = Toy(
    bags={("a", "b/c"): BoosterBag(("x", "y")), ("a b", "c"): BoosterBag(("z",))},
    bag=BoosterBag(("one", "two")),
    onnx=b"\x00\xff",
    base=Constant({"latency_ms": 2.5}),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TOY.save(tmp_path / "toy")
    return tmp_path / "toy"


def edit(folder: Path, **changes) -> None:
    path = folder / "predictor.json"
    content = json.loads(path.read_text())
    content["parameters"] |= changes.pop("parameters", {})
    path.write_text(json.dumps(content | changes))


def test_files_are_named_by_their_fields_and_keys(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        *("bag-0.txt.xz", "bag-1.txt.xz", "bags-a-b_c-0.txt.xz", "bags-a-b_c-1.txt.xz"),
        *("bags-a_b-c-0.txt.xz", "base-constant", "onnx-0.onnx", "predictor.json"),
    ]
    assert all(path.name.endswith(ALLOWED) for path in folder.rglob("*") if path.is_file())


def test_it_comes_back_from_its_folder(folder):
    assert Toy.load(folder) == TOY


def test_keys_that_would_name_one_file_get_two(tmp_path):
    toy = Toy(bags={("a", "b/c"): BoosterBag(("x",)), ("a", "b_c"): BoosterBag(("y",))})
    toy.save(tmp_path)
    assert Toy.load(tmp_path) == toy


def test_what_is_not_there_takes_no_file(tmp_path):
    Toy().save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"predictor.json", "base-constant"}
    assert Toy.load(tmp_path) == Toy()


def test_long_parameters_are_compressed(tmp_path):
    long = Constant({str(number): number / 7 for number in range(9000)})
    long.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["predictor.json.gz"]
    assert load_part(tmp_path) == long
    packed = tmp_path / "predictor.json.gz"
    packed.write_bytes(packed.read_bytes()[:-1])
    with pytest.raises(BadArtifact, match=r"no readable predictor\.json"):
        load_part(tmp_path)


def test_other_features_are_refused(folder):
    edit(folder, names={"features": ["depth", "width"]})
    with pytest.raises(BadArtifact, match="was fitted with other features; fit it again"):
        Toy.load(folder)


def test_another_format_is_refused(folder):
    edit(folder, format="forerun.predictor/1")
    with pytest.raises(BadArtifact, match=f"not in format {FORMAT}; fit it again"):
        Toy.load(folder)


@pytest.mark.parametrize("text", ["[]", "{}", "null", "{", '{"format": "forerun.predictor/2"}'])
def test_a_file_of_something_else_is_refused(folder, text):
    (folder / "predictor.json").write_text(text)
    with pytest.raises(BadArtifact, match=r"predictor\.json"):
        Toy.load(folder)


def test_another_predictor_is_refused(folder):
    with pytest.raises(BadArtifact, match="holds 'toy', not 'constant'"):
        Constant.load(folder)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"seed": "0"}, r"\.seed"),
        ({"surprise": 1}, "surprise"),
        ({"bag": {"$files": "bag/0"}}, "not a file name"),
        ({"bag": {"$files": ["../toy/bag-0.txt.xz"]}}, "not a file name"),
        ({"bag": {"$files": [3]}}, "not a file name"),
        ({"bag": {"$files": ["bag-7.txt.xz"]}}, r"lacks bag-7\.txt\.xz"),
        ({"bag": {"$files": ["onnx-0.onnx"]}}, r"booster is damaged.*\.bag"),
        ({"bag": ["x"]}, r"\.bag"),
        ({"onnx": "x"}, r"\.onnx"),
        ({"base": {"$predictor": ".."}}, "not a file name"),
        ({"base": {"$predictor": "elsewhere"}}, "elsewhere"),
        ({"base": {"means": {}}}, r"\.base"),
    ],
)
def test_a_damaged_field_is_refused_with_the_folder_and_the_field(folder, parameters, words):
    edit(folder, parameters=parameters)
    with pytest.raises(BadArtifact, match=words) as error:
        Toy.load(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_part_of_another_type_is_refused(folder):
    Roofline().save(folder / "base-roofline")
    edit(folder, parameters={"base": {"$predictor": "base-roofline"}})
    with pytest.raises(BadArtifact, match=r"a Roofline is not a Constant.*\.base"):
        Toy.load(folder)


def test_the_parts_of_a_folder_are_listed_without_loading_them(tmp_path):
    Router((Constant({"latency_ms": 1.0}), Roofline(), Constant())).save(tmp_path)
    edit(tmp_path / "parts-0-constant", parameters={"surprise": 1})
    assert stored_name(tmp_path) == "chosen"
    assert contained(tmp_path) == [
        ("constant", tmp_path / "parts-0-constant"),
        ("roofline", tmp_path / "parts-1-roofline"),
        ("constant", tmp_path / "parts-2-constant"),
    ]


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_predictor_is_stored_by_the_codec_alone(name, tmp_path):
    cls = predictor_class(name)
    assert issubclass(cls, StoredPredictor)
    assert cls.load.__func__ is StoredPredictor.load.__func__
    unfitted = Router((Constant(),)) if cls is Router else cls()
    unfitted.save(tmp_path / "first")
    load_part(tmp_path / "first").save(tmp_path / "second")
    first, second = (seal(tmp_path / one, "2000-01-01") for one in ("first", "second"))
    assert first == second
