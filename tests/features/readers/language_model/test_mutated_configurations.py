"""Real configurations with fields dropped, altered or replaced are read or refused by a field."""

import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.errors import UnreadableModel
from forerun.features.readers.language_model.reader import (
    named_config,
    named_models,
    read_language_model,
)

ANY = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 300),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from([10**4000, 1 << 24, -(1 << 70), math.inf, math.nan, "fp8", "4096", b"x"]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
"""What JSON can hold, and what Python can besides."""
KNOWN = sorted({name for model in named_models() for name in named_config(model)})
"""Names of fields that some family has, for fields that do not belong."""


def places(node, path=()):
    """The objects in a configuration, as paths from its top."""
    yield path
    inner = node.items() if isinstance(node, dict) else enumerate(node[:3])
    for key, value in inner:
        if isinstance(value, dict | list) and value:
            yield from places(value, (*path, key))


def altered(value, draw):
    """A value that is near what stood there, or anything."""
    if isinstance(value, int) and not isinstance(value, bool) and draw(st.booleans()):
        return draw(st.sampled_from([-value, 0, value + 1, 2 * value, value / 3, str(value), 1]))
    if isinstance(value, list) and value and draw(st.booleans()):
        return draw(st.sampled_from([value[:-1], value + value[-1:], value[::-1], [value]]))
    if isinstance(value, str) and draw(st.booleans()):
        return draw(st.sampled_from([value[:-1], value.upper(), value + value, [value]]))
    return draw(ANY)


def mutate(config, draw):
    """Change one place of a configuration; the changed field's name."""
    path = draw(st.sampled_from(list(places(config))))
    node = config
    for key in path:
        node = node[key]
    if isinstance(node, list):
        at = draw(st.integers(0, len(node) - 1))
        node[at] = altered(node[at], draw)
        return
    kind = draw(st.sampled_from(["drop", "alter", "alter", "replace", "add"]))
    name = draw(st.sampled_from(KNOWN if kind == "add" or not node else sorted(node)))
    if kind == "drop":
        node.pop(name, None)
    elif kind == "alter" and name in node:
        node[name] = altered(node[name], draw)
    else:
        node[name] = draw(ANY)


@pytest.mark.slow
@given(st.data())
@settings(derandomize=True)
def test_a_changed_configuration_is_described_soundly_or_refused_by_a_field(data):
    config = named_config(data.draw(st.sampled_from(named_models())))
    config = copy.deepcopy(config)
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(config, data.draw)
    try:
        model = read_language_model(config)
    except UnreadableModel as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) < 2000
        assert said.startswith("Cannot read the configuration: ")
        said = said.removeprefix("Cannot read the configuration: ")
        field = said.split()[0].rpartition(".")[2]
        assert field.replace("_", "").replace("-", "").isalnum(), said
    else:
        sizes = (model.parameters(), model.active_parameters(), model.weight_bytes())
        assert all(math.isfinite(size) and size > 0 for size in sizes)
        assert model.active_parameters() <= model.parameters()
        assert 0 <= model.cache_bytes(100) <= model.cache_bytes(1000) < math.inf
