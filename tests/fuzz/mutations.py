"""Changes to valid requests: of JSON values, of bytes, of ONNX files and of query parameters.

Every function takes a generator of random numbers and nothing else that varies, so that a seed
gives the same request again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode

from tests.fuzz.asked import BINARY, JSON, Asked
from tests.fuzz.onnx_fields import with_other_fields

NUMBERS: Sequence[Any] = (
    *(0, -0.0, -1, 1, 2, 0.5, 1e-320, 5e-324, 1e-300, 1e-9, 1e308, 1.7e308, -1e308, 1e15, 1e16),
    *(1e-3, 1e-6, 1e6, 1e9, 1e12, 1e100, 1e300),
    *(2**31 - 1, 2**31, 2**32, 2**40, 2**50, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30),
    *(65_535, 65_536, 65_537, 1_000_000, float("nan"), float("inf"), float("-inf")),
)
WHOLE = [number for number in NUMBERS if isinstance(number, int)]
TEXTS: Sequence[str] = (
    *("", " ", "\x00", "\n", "a\nb", "\ud800", "\udfff\ud800", "\u202e", "é", "😀", "A" * 10_000),
    *("9" * 400, "1." + "9" * 400, "-1", "1.2.3", "null", "NaN", "1e400", "true", "%00", "'"),
    *("../../etc/passwd", "<script>", "{{7*7}}", "l4", "conv", "resnet50", "fp16", "fp8"),
    *("gpu", "cpu", "training", "inference", "compiled"),
)
OTHERS: Sequence[Any] = (None, True, False, [], {}, [[]], [{}], {"": None}, [None], [1, "a"])
NESTED = "lists or objects that start with {} nested {} deep"
DEPTHS = (10, 100, 1_000, 20_000)
MOST_CHANGES = 3
RAW: Sequence[bytes] = (
    *(b"NaN", b"Infinity", b"-Infinity", b"-0", b"1e999", b"-1e999", b"1e-999", b"9" * 5_000),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800", b'"\\u0000"', b"{", b"}", b"[", b","),
    *(b'"', b"0x10", b"1_000", b"//", b"'", b'{"a":1,"a":2}'),
)  # fmt: skip


def mutated(valid: Asked, random: Random) -> Asked:
    """A request that differs from a valid one in a few places."""
    changes: list[Callable[[Asked, Random], Asked]] = [_query] if valid.query else []
    if valid.content_type == BINARY:
        changes += [_flipped, _flipped, _truncated, _duplicated, _fields, _fields, _fields]
    elif valid.body:
        changes += (
            [_values] * 5 + [_numbers] * 4 + [_raw, _truncated, _flipped, _duplicated, _keys, _type]
        )
    else:
        changes += [_query, _path]
    return random.choice(changes)(valid, random)


def _values(valid: Asked, random: Random) -> Asked:
    """Other values at a few places of the JSON."""
    content = json.loads(valid.body)
    for _ in range(random.randint(1, MOST_CHANGES)):
        content = _changed(content, random)
    return replace(valid, body=_dumped(content))


def _numbers(valid: Asked, random: Random) -> Asked:
    """Other numbers at a few places, most often of the same type, or one at all of an object."""
    content = json.loads(valid.body)
    places = [place for place in _places(content) if type(place[0][place[1]]) in (int, float)]
    for _ in range(random.randint(1, MOST_CHANGES) if places else 0):
        holder, key = random.choice(places)
        whole = isinstance(holder[key], int) and random.random() < 0.8
        number = random.choice(WHOLE if whole else NUMBERS)
        together = random.random() < 0.3
        for other, name in places if together else ((holder, key),):
            if other is holder:
                other[name] = number
    return replace(valid, body=json.dumps(content).encode())


def _dumped(content: Any) -> bytes:
    """As JSON, with nested lists and objects in place of their mark."""
    text = json.dumps(content)
    for start, end in (("[", "]"), ('{"a":', "}")):
        for depth in DEPTHS:
            inner = start * depth + "0" + end * depth
            text = text.replace(json.dumps(NESTED.format(start, depth)), inner)
    return text.encode()


def _changed(content: Any, random: Random) -> Any:
    """A copy with another value, or without one, at one place."""
    content = deepcopy(content)
    places = list(_places(content))
    if not places:
        return _nasty(content, random)
    holder, key = random.choice(places)
    action = random.randrange(8)
    if action == 0 and isinstance(holder, dict):
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[random.choice((*TEXTS, f"{key}s", key.upper()))] = deepcopy(holder[key])
    elif action == 2 and isinstance(holder, list):
        holder.extend([deepcopy(holder[key])] * random.choice((1, 3, 100)))
    elif action == 3:
        other, name = random.choice(places)
        holder[key] = deepcopy(other[name])
    else:
        holder[key] = _nasty(holder[key], random)
    return content


def _nasty(value: Any, random: Random) -> Any:
    """Another value: most often of the same type, so that it passes the first checks."""
    if isinstance(value, int | float) and not isinstance(value, bool) and random.random() < 0.7:
        scaled = value * random.choice((2, 10, 1e3, 1e6, 1e12, 1e-3, 1e-12, -1))
        whole = int(scaled) if isinstance(value, int) else scaled
        return random.choice((whole, random.choice(NUMBERS)))
    if isinstance(value, str) and random.random() < 0.7:
        return random.choice((value + random.choice(TEXTS), random.choice(TEXTS)))
    if random.random() < 0.1:
        return NESTED.format(random.choice(("[", '{"a":')), random.choice(DEPTHS))
    return deepcopy(random.choice(random.choice((NUMBERS, TEXTS, OTHERS))))


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key or index in it; none for a number or a text."""
    waiting = [content] if isinstance(content, dict | list) else []
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each))
        for key in keys:
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])


def _raw(valid: Asked, random: Random) -> Asked:
    """Text in place of a number or a text of the JSON, or in between."""
    at = random.randrange(len(valid.body))
    gone = random.choice((0, 1, 4))
    return replace(valid, body=valid.body[:at] + random.choice(RAW) + valid.body[at + gone :])


def _truncated(valid: Asked, random: Random) -> Asked:
    return replace(valid, body=valid.body[: random.randrange(len(valid.body))])


def _flipped(valid: Asked, random: Random) -> Asked:
    body = bytearray(valid.body)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
    return replace(valid, body=bytes(body))


def _duplicated(valid: Asked, random: Random) -> Asked:
    """A piece of the body twice."""
    start = random.randrange(len(valid.body))
    piece = valid.body[start : start + random.choice((1, 10, 100, 10_000))]
    at = random.randrange(len(valid.body))
    return replace(valid, body=valid.body[:at] + piece + valid.body[at:])


def _keys(valid: Asked, random: Random) -> Asked:
    """A key twice in one object, with two values."""
    content = json.loads(valid.body)
    holders = [(each, key) for each, key in _places(content) if isinstance(each, dict)]
    holder, key = random.choice(holders)
    repeated = json.dumps(key) + ": " + json.dumps(_nasty(holder[key], random)) + ", "
    mark = "MARK-OF-THE-REPEATED-KEY"
    holder[mark] = None
    text = json.dumps(content).replace(f'"{mark}": null', f"{repeated}{json.dumps(key)}: 1")
    return replace(valid, body=text.encode())


def _type(valid: Asked, random: Random) -> Asked:
    """Another content type, or another encoding of the text."""
    kinds = ("", "text/plain", BINARY, f"{JSON}; charset=utf-16", "multipart/form-data", "a/b;;")
    if random.random() < 0.5:
        return replace(valid, content_type=random.choice(kinds))
    return replace(valid, body=valid.body.decode().encode(random.choice(("utf-16", "utf-32"))))


def _fields(valid: Asked, random: Random) -> Asked:
    """Other fields in the messages of an ONNX file."""
    return replace(valid, body=with_other_fields(valid.body, random, NUMBERS, TEXTS))


def _query(valid: Asked, random: Random) -> Asked:
    """Other query parameters: values, repetitions, unknown names, broken encodings."""
    pairs = parse_qsl(valid.query)
    if not pairs:
        return replace(valid, query=random.choice(("a=1", "%", "&&&", "=", "a" * 5_000, "%ff=%ff")))
    at = random.randrange(len(pairs))
    name, value = pairs[at]
    action = random.randrange(6)
    if action == 0:
        pairs.insert(at, (name, random.choice(pairs)[1]))
    elif action == 1:
        pairs[at] = (random.choice((name + "s", name.upper(), "shape", "")), value)
    elif action == 2:
        del pairs[at]
    elif action == 3:
        pairs.append(("shape", random.choice(("x=1", "1x3x4", "input=1x3x9999999", "=", "a=0x0"))))
    else:
        pairs[at] = (name, _parameter(value, random))
    if random.random() < 0.05:
        return replace(
            valid, query=urlencode(pairs, errors="replace")[: random.randrange(99)] + "%"
        )
    return replace(valid, query=urlencode(pairs, errors="replace"))


def _parameter(value: str, random: Random) -> str:
    if random.random() < 0.5:
        return str(random.choice(NUMBERS))
    return random.choice((value + random.choice(TEXTS), random.choice(TEXTS)))


def _path(valid: Asked, random: Random) -> Asked:
    """Another last part of the path, or another method."""
    if random.random() < 0.3:
        methods = ("POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
        return replace(valid, method=random.choice(methods))
    start = valid.path.rpartition("/")[0]
    text = random.choice(TEXTS)[:300].encode(errors="replace")
    return replace(valid, path=f"{start}/{quote_plus(text)}")
