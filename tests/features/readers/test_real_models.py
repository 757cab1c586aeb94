"""Real model files of published packages are read as listed, or refused with the listed reason."""

import pytest

from forerun.data.errors import InputError
from tests import real_models
from tests.every import for_every

ENTRIES = real_models.listed()
MADE = "onnx/backend/test/data/light"
"""Their weights are not stored: they are made at a stored shape."""


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=real_models.name_of)
def test_a_real_model_is_read_or_refused_with_the_reason(entry):
    content = real_models.content_of(entry)
    if content is None:
        pytest.skip("only in its package: scripts/fetch_real_models, then FORERUN_REAL_MODELS")
    for question in entry["questions"]:
        assert real_models.outcome_of(content, question) == question["expected"]
        graph = real_models.read(content, question)
        if not isinstance(graph, InputError) and not entry["path"].startswith(MADE):
            assert sum(graph.stored_bytes.values()) == real_models.stored_bytes(content)


def test_the_list_covers_vision_detection_text_audio_and_tree_ensembles():
    kinds = {entry["kind"].partition(":")[0] for entry in ENTRIES}
    wanted = {"vision", "detection", "OCR", "audio", "text", "classical", "embedding", "graphs"}
    assert kinds >= wanted
    assert len(ENTRIES) >= 120
    assert len({entry["sha256"] for entry in ENTRIES}) == len(ENTRIES)


def test_copies_hold_no_weights():
    copies = [entry for entry in ENTRIES if entry["copy"]]
    sizes = real_models.sizes_of_copies()
    assert len(copies) >= 25
    assert real_models.COPIES.stat().st_size < 600_000
    assert max(sizes) < 600_000


@for_every("entry", ENTRIES)
def test_only_files_whose_licence_allows_it_are_copied(entry):
    if entry["copy"]:
        allowed = ("Apache-2.0", "MIT", "BSD-2-Clause", "ISC; models MIT")
        assert entry["licence"] in allowed
