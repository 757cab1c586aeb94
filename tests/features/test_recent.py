"""Recent results: the least recently used go first, and missing ones are computed at once."""

from forerun.features.caches import Recent


def test_the_value_that_was_used_longest_ago_is_dropped() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
    assert len(recent) == 2


def test_a_value_that_is_put_again_counts_as_used() -> None:
    recent: Recent[str, int] = Recent(2)
    for key, value in (("a", 1), ("b", 2), ("a", 4), ("c", 3)):
        recent.put(key, value)
    assert (recent.get("a"), recent.get("b")) == (4, None)


def test_missing_values_are_computed_in_one_call_and_known_ones_not_again() -> None:
    recent: Recent[str, int] = Recent(10)
    recent.put("b", 20)
    calls = []

    def compute(places: list[int]) -> list[int]:
        calls.append(places)
        return [place * 100 for place in places]

    assert recent.of_each(["a", "b", "c"], compute) == [0, 20, 200]
    assert recent.of_each(["c", "a"], compute) == [200, 0]
    assert calls == [[0, 2]]


def test_more_keys_than_are_kept_have_their_values_all_the_same() -> None:
    recent: Recent[int, int] = Recent(1)
    assert recent.of_each([1, 2, 3], lambda places: [place + 1 for place in places]) == [1, 2, 3]


def test_heavy_values_leave_room_for_fewer_others() -> None:
    recent: Recent[str, int] = Recent(10)
    for key, weight in (("a", 4), ("b", 4), ("c", 4)):
        recent.put(key, 1, weight)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (None, 1, 1)
    recent.put("b", 2, 6)
    assert (recent.get("b"), recent.get("c")) == (2, 1)
    recent.put("d", 3, 1)
    assert (recent.get("b"), recent.get("c"), recent.get("d")) == (None, 1, 3)


def test_a_value_heavier_than_all_may_be_is_kept_alone_until_the_next_one() -> None:
    recent: Recent[str, int] = Recent(10)
    recent.put("a", 1)
    recent.put("huge", 2, 1000)
    assert (recent.get("a"), recent.get("huge"), len(recent)) == (None, 2, 1)
    recent.put("b", 3)
    assert (recent.get("huge"), recent.get("b")) == (None, 3)


def test_nothing_is_kept_where_nothing_may_be() -> None:
    recent: Recent[str, int] = Recent(0)
    recent.put("a", 1)
    assert (recent.get("a"), len(recent)) == (None, 0)
