"""A graph of two operators in a file."""

import json

import pytest

from tests.service.conftest import GRAPH


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GRAPH.to_json()))
    return path
