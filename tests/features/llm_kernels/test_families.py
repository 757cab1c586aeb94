"""Which operators of networks are kernels of language models, and families of deployments."""

from dataclasses import replace

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.language_models.deployment import LlmDeployment, Parallelism, Pool, RequestLoad
from forerun.data.language_models.kernel import GemmKernel, LlmKernel
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.llm_kernels.deployed import families_of
from forerun.features.llm_kernels.families import family_of, kernel_groups, llm_kernel_of
from forerun.features.readers.language_model.reader import named_config, read_language_model

LINEAR = Operator("linear", "aten.addmm", ((8, 16, 512),), ((8, 16, 256),), 512 * 256)
MATMUL = Operator("matmul", "aten.mm", ((128, 512), (512, 256)), ((128, 256),))


@pytest.mark.parametrize("operator", [LINEAR, MATMUL])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_product_of_two_matrices_is_that_of_an_engine(operator, precision):
    """Leading dimensions of the activations are tokens; both forms are 128 x 512 by 512 x 256."""
    expected = LlmKernel(GemmKernel(128, 256, 512, precision))
    assert llm_kernel_of(Kernel(operator, precision)) == expected


@pytest.mark.parametrize(
    ("operator", "precision"),
    [
        (LINEAR, "fp32"),
        (LINEAR, "amp"),
        (LINEAR, "int8"),
        (LINEAR, "fp8"),
        (replace(MATMUL, input_shapes=((4, 32, 512), (4, 512, 256))), "bf16"),
        (replace(LINEAR, output_shapes=((7, 16, 256),)), "bf16"),
        (replace(LINEAR, input_shapes=((),)), "bf16"),
        (replace(LINEAR, output_shapes=((0, 256),), input_shapes=((0, 512),)), "bf16"),
        (replace(LINEAR, kind="softmax"), "bf16"),
    ],
)
def test_other_operators_are_none(operator, precision):
    """Other precisions, batches of products, shapes that do not fit, and other kinds."""
    assert llm_kernel_of(Kernel(operator, precision)) is None


def test_an_operator_has_the_table_of_the_same_kernel():
    device = DeviceCatalog.load().get("h100-sxm-80gb")
    kernel = LlmKernel(GemmKernel(128, 256, 512, "bf16"))
    queries = [Query(Kernel(LINEAR, "bf16"), device), Query(kernel, device)]
    (group,) = kernel_groups(queries)
    assert group.family == family_of(kernel.kernel)
    assert (group.table.features[0] == group.table.features[1]).all()


def deployment(name: str, tensor: int = 1) -> LlmDeployment:
    model = read_language_model(named_config(name))
    pool = Pool(Parallelism(tensor=tensor))
    return LlmDeployment(model, RequestLoad(1024, 256, concurrency=8), pool=pool)


def test_a_dense_model_has_products_and_attention_and_messages_where_layers_are_divided():
    families = families_of(deployment("llama-3.1-8b"))
    assert families["dense"] == {"gemm/bf16"}
    assert families["prefill_attention"] == {"prefill/bf16_bf16"}
    assert families["decode_attention"] == {"decode/bf16"}
    assert families.keys() == {"dense", "prefill_attention", "decode_attention"}
    assert families_of(deployment("llama-3.1-8b", 2))["messages"] == {"nccl/all_reduce"}


def test_experts_have_a_family_and_attention_of_latent_vectors_has_none():
    families = families_of(deployment("deepseek-v3"))
    assert families["experts"] == {"experts/fp8"}
    assert "decode_attention" not in families
