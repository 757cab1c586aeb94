"""Workloads of requests beyond operators and networks, in forms that are easy to write."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from forerun.data.errors import BadRequest, in_field
from forerun.data.language_models.deployment import LlmDeployment, Pool
from forerun.data.named.search_spaces import (
    FBNET_LAYERS,
    NB201_EDGES,
    OFA_BLOCKS,
    OFA_STAGES,
    FbnetBlock,
    Nb201Operation,
)
from forerun.service.schemas.fields import Name, Number, Strict, by_form
from forerun.service.schemas.llm.deployment import DeploymentFields, ParallelismIn
from forerun.service.schemas.llm.model import LanguageModelIn
from forerun.service.schemas.serving import DiffusionIn, LlmIn

MOST_NODES = 2_500
MOST_EDGES = 10_000
MOST_SETTINGS = 64
EXAMPLE_CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"
Cell = Annotated[str, StringConstraints(max_length=300)]
Text = Annotated[str, StringConstraints(max_length=2_000)]
Node = Annotated[int, Field(ge=0, lt=MOST_NODES)]
Small = Annotated[int, Field(ge=-(2**15), lt=2**15)]
Factor = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Choice = Annotated[str, StringConstraints(max_length=64)]


def _of_a_directive(given: Any) -> Any:
    """The value as it was given, where its type is one that directives take."""
    if isinstance(given, str) or (_is_number(given) and given % 1 == 0):
        return given
    raise ValueError("a directive is a whole number, or a text such as 'off' or 'flatten'")


def _of_a_setting(given: Any) -> Any:
    """The value as it was given, where its type is one that settings take."""
    if isinstance(given, str) or _is_number(given):
        return given
    raise ValueError("a setting is a number, or a text that is one of its choices")


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


Directive = Annotated[
    Annotated[Choice, Tag("name")] | Annotated[Factor, Tag("content")],
    Discriminator(by_form),
    BeforeValidator(_of_a_directive),
]
Setting = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Number, Tag("content")],
    Discriminator(by_form),
    BeforeValidator(_of_a_setting),
]


class Nb201In(Strict):
    """A network of NAS-Bench-201."""

    kind: Literal["architecture"]
    """kind of workload: an architecture"""
    space: Literal["nb201"]
    """search space: NAS-Bench-201"""
    cell: Annotated[
        Annotated[Cell, Tag("name")]
        | Annotated[
            list[Nb201Operation],
            Field(min_length=NB201_EDGES, max_length=NB201_EDGES),
            Tag("content"),
        ],
        Discriminator(by_form),
    ] = Field(
        description="the cell as NAS-Bench-201 writes it, or the operations on its edges 0-1, 0-2, "
        f"1-2, 0-3, 1-3, 2-3, such as {EXAMPLE_CELL}"
    )


class FbnetIn(Strict):
    """A network of FBNet's search space, for images of 32 x 32 pixels."""

    kind: Literal["architecture"]
    """kind of workload: an architecture"""
    space: Literal["fbnet"]
    """search space: FBNet"""
    blocks: Annotated[list[FbnetBlock], Field(min_length=FBNET_LAYERS, max_length=FBNET_LAYERS)]
    """block of each layer: kernel size k, expansion e, groups g"""


class OfaIn(Strict):
    """A network of OFA-MobileNetV3: up to four blocks in each of five stages."""

    kind: Literal["architecture"]
    """kind of workload: an architecture"""
    space: Literal["ofa"]
    """search space: OFA-MobileNetV3"""
    kernel_sizes: list[Literal[3, 5, 7]] = Field(min_length=OFA_BLOCKS, max_length=OFA_BLOCKS)
    """kernel size of each block, four per stage; those beyond a stage's depth have no effect"""
    expansions: list[Literal[3, 4, 6]] = Field(min_length=OFA_BLOCKS, max_length=OFA_BLOCKS)
    """expansion of each block"""
    depths: list[Literal[2, 3, 4]] = Field(min_length=OFA_STAGES, max_length=OFA_STAGES)
    """number of blocks in each stage"""
    image_size: int = Field(default=224, ge=32, le=1024)
    """height and width of the input, pixels"""


class ProgramGraphIn(Strict):
    """A program as a graph of ProGraML, with slots for directives."""

    types: list[Annotated[int, Field(ge=0, le=3)]] = Field(min_length=1, max_length=MOST_NODES)
    """per node: 0 instruction, 1 variable, 2 constant, 3 slot of a directive"""
    texts: list[Text] = Field(max_length=MOST_NODES)
    """short text of each node"""
    full_texts: Annotated[list[Text], Field(max_length=MOST_NODES)]
    """full text of each node, such as #pragma ACCEL PIPELINE auto{__PIPE__L0}"""
    edges: list[tuple[Node, Node, Annotated[int, Field(ge=0, le=3)], Small]] = Field(
        max_length=MOST_EDGES
    )
    """from, to, flow (0 control, 1 data, 2 call, 3 directive), position"""
    blocks: list[Small] = Field(max_length=MOST_NODES)
    """basic block of each node"""
    functions: list[Small] = Field(max_length=MOST_NODES)
    """function of each node"""

    @model_validator(mode="after")
    def _is_a_graph(self) -> "ProgramGraphIn":
        """Every node has all its fields, and every edge joins two nodes."""
        count = len(self.types)
        for name in ("texts", "full_texts", "blocks", "functions"):
            if len(getattr(self, name)) != count:
                raise ValueError(f"{name} needs one entry for each of the {count} nodes")
        if any(max(start, end) >= count for start, end, _, _ in self.edges):
            raise ValueError(f"an edge joins a node that is not among the {count} nodes")
        return self


class DesignIn(Strict):
    """A program with directives for high-level synthesis."""

    kind: Literal["design"]
    """kind of workload: a hardware design"""
    program: Annotated[
        Annotated[Name, Tag("name")] | Annotated[ProgramGraphIn, Tag("content")],
        Discriminator(by_form),
    ]
    """name of a program (GET /v1/workloads lists them), or its graph"""
    directives: Annotated[dict[Name, Directive], Field(max_length=MOST_NODES)] = Field(
        default_factory=dict
    )
    """slot -> its value: a factor for __PARA__ and __TILE__, 1 when absent; off, flatten or an
    empty text (the default pipeline) for __PIPE__, off when absent"""


class BenchmarkIn(Strict):
    """One test of a benchmark suite."""

    kind: Literal["benchmark"]
    """kind of workload: a test of a benchmark suite"""
    suite: Name
    """name of the suite; GET /v1/workloads lists them"""
    settings: dict[Name, Setting] = Field(max_length=MOST_SETTINGS)
    """setting -> its value, a number or one of its choices"""


class LlmServingIn(LlmIn):
    """A language model that serves requests, as in POST /v1/llm/estimate."""

    kind: Literal["llm_serving"]
    """kind of workload: serving a language model"""


class LlmDeploymentIn(DeploymentFields):
    """A language model on an engine, with lengths, as in POST /v1/llm/estimate."""

    kind: Literal["llm_deployment"]
    """kind of workload: a deployed model"""
    model: LanguageModelIn
    """the model, or the name of a public model alone"""

    def encoded_tokens(self) -> float | None:
        """As of the model."""
        return self.model.encoded_tokens()

    @model_validator(mode="after")
    def _is_whole(self) -> "LlmDeploymentIn":
        """Lengths and a load are given, and the layers of the model are known."""
        if self.input_tokens is None:
            raise ValueError("input_tokens is missing")
        if (self.model.name is None) == (self.model.config is None):
            raise ValueError("model: give one of name and config")
        return self

    def deployment(self) -> LlmDeployment:
        """The deployment as it was measured, with the degrees that the request gives.

        Raises:
            BadRequest: it names no degree of tensor parallelism.
            UnreadableModel: the configuration is damaged, or the name is not known.
        """
        with in_field("model"):
            model = self.model.language_model(self.engine.name)
        assert model is not None
        first, own = None, self.prefill
        if own is not None:
            first = _pool(own.parallelism, own.workers, "prefill", "parallelism")
        pool = _pool(self.parallelism, self.workers or 1, "parallelism")
        return LlmDeployment(model, self.load(), self.engine.engine(), pool, first)


def _pool(given: ParallelismIn, workers: int, *path: str) -> Pool:
    """The workers of a phase; `path` is where the request describes their parallelism."""
    degrees = given.parallelism()
    if degrees is None:
        with in_field(*path, "tensor"):
            raise BadRequest(
                f"{'.'.join(path)}.tensor is missing: a measurement says how many devices share a "
                "layer."
            )
    return Pool(degrees, workers)


class DiffusionWorkloadIn(DiffusionIn):
    """A diffusion model, as in POST /v1/diffusion/estimate."""

    kind: Literal["diffusion"]
    """kind of workload: a diffusion model"""


def form_of(given: Any) -> str | None:
    """The tag of a workload: its kind, or the search space of an architecture."""

    def named(name: str) -> Any:
        return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)

    form = named("space") if named("kind") == "architecture" else named("kind")
    return form if isinstance(form, str) else None
