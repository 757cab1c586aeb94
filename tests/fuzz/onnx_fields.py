"""Other values of fields inside an ONNX file, which stays a well-formed protocol buffer."""

from collections.abc import Iterator, MutableSequence, Sequence
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

MOST_CHANGES = 4


def with_other_fields(
    content: bytes, random: Random, numbers: Sequence[Any], texts: Sequence[str]
) -> bytes:
    """The file with other numbers, names, or parts of lists in a few of its messages.

    Args:
        content: an ONNX file.
        random: what chooses.
        numbers: numbers to put in place of those in the file, where they fit.
        texts: texts to put in place of those in the file.
    """
    model = onnx.load_from_string(content)
    messages = list(_messages(model))
    for _ in range(random.randint(1, MOST_CHANGES)):
        message = random.choice(messages)
        present = [field for field, _ in message.ListFields()]
        if present:
            _change(message, random.choice(present), random, numbers, texts)
    try:
        return bytes(model.SerializeToString())
    except (DecodeError, ValueError):  # a text that is no Unicode
        return content


def _messages(message: Message) -> Iterator[Message]:
    """A message and all messages in it; of stored weights, only the outermost."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if _is_list(value) else (value,):
                yield from _messages(each)


def _is_list(value: Any) -> bool:
    return isinstance(value, MutableSequence)


def _change(
    message: Message,
    field: FieldDescriptor,
    random: Random,
    numbers: Sequence[Any],
    texts: Sequence[str],
) -> None:
    """Change one field, or drop or repeat an entry of a list."""
    held = getattr(message, field.name)
    if _is_list(held):
        at = random.randrange(len(held))
        if random.random() < 0.3:
            del held[at]
        elif field.message_type is not None:
            held.add().CopyFrom(held[at])
        else:
            _set(lambda value: held.__setitem__(at, value), held[at], random, numbers, texts)
    elif field.message_type is not None or random.random() < 0.2:
        message.ClearField(field.name)
    else:
        _set(lambda value: setattr(message, field.name, value), held, random, numbers, texts)


def _set(put: Any, held: Any, random: Random, numbers: Sequence[Any], texts: Sequence[str]) -> None:
    """Put another value of the same type; one that the field does not take is left out."""
    if isinstance(held, str):
        given: Any = random.choice(texts)
    elif isinstance(held, bytes):
        given = random.choice(texts).encode(errors="replace")
    else:
        given = random.choice(numbers)
        given = given if isinstance(held, float) or given != given else _whole(given)
    try:
        put(given)
    except (TypeError, ValueError, UnicodeEncodeError):
        return


def _whole(number: Any) -> int:
    return int(number) if abs(number) < 2**64 else 2**63 - 1
