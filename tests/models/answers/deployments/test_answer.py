"""Figures of one answer agree with each other."""

from forerun.data.device import DeviceCatalog
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled

CATALOG = DeviceCatalog.load()
MODELS = {"llama-3.1-8b": 1, "qwen3-32b": 2, "qwen3-30b-a3b": 1, "gpt-oss-120b": 2}
DEVICES = ("h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb")
KINDS = ("chat", "reasoning", "code")
IN_USE = InUse(bundled())
