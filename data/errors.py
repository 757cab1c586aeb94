"""The hierarchy of errors that a caller can correct.

    InputError
    ├── BadRequest
    ├── UnknownDevice
    ├── UnknownPrecision
    ├── UnknownBandwidth
    ├── UnknownMetric
    ├── UnknownDataset
    ├── UnknownGraph
    ├── UnknownPreset
    ├── UnknownLanguageModel
    ├── UnknownModelVersion
    ├── PromotionRefused
    ├── SlicesGotWorse
    ├── UnreadableModel
    │   └── ModelTooLarge
    ├── BadShape
    ├── UnanswerableQuery
    ├── BadArchitecture
    ├── BadDesign
    ├── BadBenchmark
    ├── BadTable
    ├── BadTrace
    ├── BadEntry
    ├── MissingData
    ├── DamagedData
    ├── MissingExtra
    ├── MissingTool
    ├── FailedProgram
    ├── BadArtifact
    ├── BrokenPlugin
    ├── DeadlineExceeded
    └── CannotStore
        └── DiskFull

The same object becomes one line of the command line and a problem+json of the service. Any other
exception is a bug of forerun and is reported as such.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import repeat
from statistics import fmean as mean
from typing import Any, Final

OF_A_BODY: Final = (
    "give each as an item of a list where a field or an argument takes one, or ask for each by "
    "itself; over HTTP, each is an item of a request to :batch"
)
"""How to ask about several devices if a request body or an argument names them."""


class InputError(Exception):
    """A request cannot be answered as it stands; the message says what, where and how to fix it.

    Attributes:
        slug: stable last part of the problem type's URI; derived from the class name by default.
        status: HTTP status.
        exit_code: exit code of the command line.
        field: keys and positions that lead to the field of the request; empty if unknown.
    """

    slug = "bad-input"
    status = 422
    exit_code = 2
    field: tuple[str | int, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "slug" not in vars(cls):
            cls.slug = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


@contextmanager
def in_field(*field: str | int) -> Iterator[None]:
    """Record the request field in which an error of the block occurred.

    Args:
        field: keys and positions, relative to where the block is in the request.
    """
    try:
        yield
    except InputError as error:
        error.field = (*field, *error.field)
        raise


class BadRequest(InputError):
    """The request is not valid."""


class UnknownDevice(InputError):
    """No spec sheet has that name."""

    status = 404

    def __init__(
        self,
        name: str,
        known: Collection[str],
        only_for: str = "",
        listed: Sequence[str] = (),
        remedy: str = OF_A_BODY,
    ) -> None:
        """Say which device is unknown.

        Args:
            name: the requested name.
            known: names among which similar ones are suggested.
            only_for: what a chip without a spec sheet is known for; empty for any other name.
            listed: names of devices in `name`, if it is a list of several.
            remedy: how to ask about these several devices.
        """
        super().__init__()
        self.name, self.listed = name, tuple(listed)
        self._known, self._only_for, self._remedy = known, only_for, remedy

    @cached_property
    def did_you_mean(self) -> list[str]:
        """Similar names; computed on first access, because the search takes milliseconds."""
        if self.listed or self._only_for:
            return list(self.listed)
        name, found = self.name.lower(), {}
        for known in difflib.get_close_matches(name, self._known, n=100, cutoff=0.2):
            like, begins = _likeness(name, known), known[:1] == name[:1]
            if like >= LIKE - 0.05 * begins:
                found[known] = not begins, -like
        return sorted(found, key=found.__getitem__)[:3]

    def __str__(self) -> str:
        if self.args:  # a caller has replaced this message
            return super().__str__()
        if self.listed:
            return f"{self.name!r:.80} lists several devices in one name: {self._remedy}."
        if self._only_for:
            return (
                f"{self.name!r} has no spec sheet; it is known only for {self._only_for}. "
                "`forerun devices` lists devices with one."
            )
        hint = f". Did you mean {' or '.join(self.did_you_mean)}?" if self.did_you_mean else ""
        return (
            f"No device named {self.name!r}{hint or ', and none of a similar name.'} `forerun "
            "devices` lists all, `forerun devices add SHEET.yaml` adds one; instance types of "
            "clouds are written as aws/m7i.4xlarge."
        )


ALIKE: Final = 0.7
"""Likeness of two words above which one may be the other, misspelt."""
LIKE: Final = 0.55
"""Likeness of names from which one is suggested; .05 less where they begin with the same letter."""


def _likeness(one: str, other: str) -> float:
    """Likeness of two names, 0 to 1: the mean over both of that of each word to its nearest; 0
    where none of several words is alike, as of m2-ultra and mi25.
    """
    first, second = (re.split("[ /-]+", name) for name in (one, other))
    nearest = [max(map(_ratio, repeat(word), second)) for word in first]
    backwards = [max(map(_ratio, repeat(word), first)) for word in second]
    return (mean(nearest) + mean(backwards)) / 2 if len(first) == 1 or max(nearest) > ALIKE else 0.0


@lru_cache(maxsize=8192)
def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


class UnknownPrecision(InputError):
    """The device's spec sheet has no peak for a precision."""

    def __init__(self, device: str, precision: str, known: Collection[str]) -> None:
        super().__init__(
            f"{device} has no arithmetic peak for {precision}; it has {', '.join(known)}."
        )


class UnknownBandwidth(InputError):
    """The device's spec sheet has no memory bandwidth."""

    def __init__(self, device: str) -> None:
        super().__init__(
            f"{device} has no spec sheet to compute with: give memory_bandwidth_gbs and "
            "peak_tflops, or ask about what was measured on it."
        )


class UnknownMetric(InputError):
    """No metric has that name."""

    def __init__(self, name: str, known: Collection[str], where: str = "") -> None:
        super().__init__(f"{where}No metric {name!r:.80}; there are {', '.join(known)}.")


class UnknownDataset(InputError):
    """No dataset has that name."""

    status = 404

    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(f"No dataset named {name!r}; there are {', '.join(known)}.")


def did_you_mean(
    name: str, known: Collection[str], cutoff: float, most: int = 3
) -> tuple[list[str], str]:
    """Names that are similar to `name`, and a sentence that suggests them."""
    found = difflib.get_close_matches(name.lower(), list(known), n=most, cutoff=cutoff)
    return found, f"Did you mean {' or '.join(found)}? " if found else ""


_REPOSITORY: Final = re.compile(
    r"([\w-][\w.-]*/)?[\w-][\w.-]*(?<!\.onnx)(?<!\.pt2)(?<!\.json)", re.ASCII
)


def why_unreadable(error: Exception) -> str:
    """Why a text file cannot be read, and how to mend it, with the line where that is known.

    Args:
        error: of the system, of decoding as UTF-8, or of a parser of YAML, JSON or tables.
    """
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return f"line {line} is not UTF-8 text; save the file in this encoding"
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(getattr(error, "strerror", None) or error).split())
    begun, context = getattr(error, "context_mark", None), getattr(error, "context", None)
    within = f" {context} from line {begun.line + 1}" if begun and context else ""
    problem = getattr(error, "problem", "")
    mend = "mend its quotes, brackets or indentation"
    return f"line {mark.line + 1} is not YAML: {problem}{within}; {mend}"


def to_fetch(name: str) -> str:
    """How to get a model of Hugging Face into its local cache, or how such models are named; empty
    for other names.
    """
    plain = name.removeprefix("hf:")
    if plain == name and "/" not in name:
        return ""
    if _REPOSITORY.fullmatch(plain) is None:
        return "name a model of Hugging Face as ORG/MODEL, which this is not"
    return f"fetch it by `hf download {plain:.80} config.json`"


class UnknownGraph(InputError):
    """No uploaded graph has that digest, and no built-in network has that name."""

    status = 404

    def __init__(self, digest: str, names: Collection[str] = ()) -> None:
        self.did_you_mean, hint = did_you_mean(digest, names, 0.6)
        listed = ", or name one of the networks that GET /v1/workloads lists" if names else ""
        if fetch := to_fetch(digest):
            listed += f", or {fetch}" + " on the host of the service" * fetch.endswith("`")
        super().__init__(
            f"No graph with digest {digest!r}; upload it with POST /v1/graphs first{listed}."
            f" {hint}".rstrip()
        )


class UnknownPreset(InputError):
    """No preset has that name."""

    status = 404

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.did_you_mean, hint = did_you_mean(name, known, 0.4)
        super().__init__(f"No preset named {name!r:.80}. {hint}`forerun presets` lists all.")


class UnknownLanguageModel(InputError):
    """No configuration of a language model has that name, or several do."""

    status = 404

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.did_you_mean, hint = did_you_mean(name, known, 0.5)
        fetch = f"; or {to_fetch(name)}" if to_fetch(name) else ""
        super().__init__(
            f"No language model named {name!r:.80} is built in or in the local cache of Hugging "
            f"Face. {hint}Give its config.json: the file in place of the name in a command, "
            f'`"model": {{"config": ...}}` in a request{fetch}.'
        )


class UnknownModelVersion(InputError):
    """The registry holds no such version of the predictors."""

    status = 404

    def __init__(self, version: str, known: Collection[str]) -> None:
        listed = f"it holds {', '.join(known)}" if known else "`forerun train` registers one"
        super().__init__(f"The registry has no version {version}; {listed}.")


class SlicesGotWorse(InputError):
    """A slice of a table got worse than in the previous release."""

    status = 409

    def __init__(self, slices: Sequence[str]) -> None:
        listed = "; ".join(slices[:3]) + ("; ..." if len(slices) > 3 else "")
        super().__init__(
            f"The release is refused: {len(slices)} slices got worse beyond the noise: {listed}. "
            "`forerun train --accept REASON` makes it all the same and stores the reason."
        )


class PromotionRefused(InputError):
    """A predictor is worse than the one it would replace, or was not compared with it."""

    status = 409

    def __init__(
        self, version: str, losses: Sequence[str], differences: Sequence[Any] = ()
    ) -> None:
        self.differences = differences
        listed = "; ".join(losses[:3]) + ("; ..." if len(losses) > 3 else "")
        count = f"{len(losses)} reason{'s' if len(losses) > 1 else ''}"
        super().__init__(
            f"Version {version} is refused against what is in use for {count}: {listed}. "
            "`forerun promote --force --reason TEXT` promotes it all the same and records why."
        )


class UnreadableModel(InputError):
    """A model, or its configuration, cannot be read."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"Cannot read {where}: {why}")


class ModelTooLarge(UnreadableModel):
    """The model is over a size limit."""

    status = 413


class BadShape(InputError):
    """A given shape or image size does not fit the inputs of the model."""


class UnanswerableQuery(InputError):
    """No predictor answers this kind of workload on this device."""


class BadTable(InputError):
    """A table of measurements does not have the columns, types or values it must have."""


class BadTrace(InputError):
    """A trace of requests cannot be read."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"Cannot read the trace ({where}): {why}.")


class BadEntry(InputError):
    """A leaderboard entry is malformed, or does not match the dataset and its predictions."""


class MissingData(InputError):
    """A dataset's files are not on this machine."""

    status = 404


class DamagedData(InputError):
    """An upstream file does not match its checksum."""

    status = 502


class MissingExtra(InputError):
    """An optional part of the installation is needed."""

    status = 501

    def __init__(self, what: str, extra: str) -> None:
        remedy = f"`scripts/install {extra}` in a clone installs it"
        super().__init__(f"{what} needs the {extra!r} extra: {remedy}.")


class MissingTool(InputError):
    """A program that a collector needs is not on this machine."""

    status = 501


class FailedProgram(InputError):
    """A program that was to be measured ended with an error."""


class BadArtifact(InputError):
    """A saved predictor is damaged, has another version, or holds a forbidden file."""

    status = 500


class BadArchitecture(InputError):
    """An architecture's choices do not belong to its search space."""


class BadDesign(InputError):
    """A hardware design has a program, directives or a device that no predictor supports."""


class BadBenchmark(InputError):
    """A benchmark names a suite or settings that no predictor in use knows."""


class BrokenPlugin(InputError):
    """An installed package declares a class that cannot be loaded."""

    status = 500

    def __init__(self, group: str, name: str, value: str, why: str) -> None:
        """Take an entry point's group, name and value, and the reason why loading it failed."""
        super().__init__(
            f"The entry point {name!r} of {group} ({value}) cannot be loaded: {why}. Fix or "
            "remove the package that declares it."
        )


class DeadlineExceeded(InputError):
    """An answer took longer than its deadline."""

    status = 503


class CannotStore(InputError):
    """A value cannot be written now, for instance because the disk is read-only."""

    status = 503


class DiskFull(CannotStore):
    """The disk has no space left."""

    status = 507
