"""Ask before you run: what will this workload cost on that hardware?

    >>> import forerun
    >>> print(forerun.predict("model.onnx", device="l4", batch_size=32, precision="amp"))

The names of `__all__` are stable; each is loaded when it is first
used, and `__init__.pyi` gives its type. The house has five floors,
each importing only the ones below it:
`forerun.data` -> `forerun.features` -> `forerun.models` -> `forerun.training` -> `forerun.service`.
"""

__version__ = "0.2.0"

__all__ = (
    "Adaptation",
    "Answer",
    "Answers",
    "Collected",
    "ColocationAnswer",
    "Comparison",
    "Device",
    "Devices",
    "Drift",
    "Estimate",
    "Fit",
    "InputError",
    "Measurement",
    "Observations",
    "Pipeline",
    "Ranking",
    "ServingAnswer",
    "ServingPlan",
    "Sweep",
    "TrainingAnswer",
    "TrainingPlan",
    "Verification",
    "__version__",
    "adapt",
    "collect",
    "colocate",
    "compare",
    "devices",
    "diffusion",
    "drift",
    "fits",
    "llm",
    "llm_plan",
    "llm_training",
    "measure",
    "observe",
    "pipeline",
    "predict",
    "rank",
    "sweep",
    "training_plan",
    "tune",
    "verify",
)

_MODULES = {
    "forerun.data.device": ("Device",),
    "forerun.data.errors": ("InputError",),
    "forerun.service.python.own_measurements.adapting": (
        "Adaptation",
        "Collected",
        "adapt",
        "collect",
        "Drift",
        "Observations",
        "drift",
        "observe",
    ),
    "forerun.service.python": ("tune",),
    "forerun.service.python.answer": (
        "Answer",
        "Answers",
        "Comparison",
    ),
    "forerun.service.python.asking": (
        "compare",
        "fits",
        "predict",
        "rank",
        "sweep",
    ),
    "forerun.service.python.colocation": (
        "ColocationAnswer",
        "colocate",
    ),
    "forerun.service.python.device_list": (
        "Devices",
        "devices",
    ),
    "forerun.service.python.view": ("Estimate", "Fit"),
    "forerun.service.python.own_measurements.measuring": (
        "Measurement",
        "measure",
    ),
    "forerun.service.python.ranking": (
        "Ranking",
        "Sweep",
    ),
    "forerun.service.python.serving": (
        "ServingAnswer",
        "diffusion",
        "llm",
    ),
    "forerun.service.python.pipelines": ("Pipeline", "pipeline"),
    "forerun.service.python.planning": (
        "ServingPlan",
        "llm_plan",
    ),
    "forerun.service.python.training": (
        "TrainingAnswer",
        "TrainingPlan",
        "llm_training",
        "training_plan",
    ),
    "forerun.service.python.own_measurements.verifying": (
        "Verification",
        "verify",
    ),
}
"""Module or package -> names of `__all__` that it holds."""


def __getattr__(name: str) -> object:
    """Load a name of `__all__` at its first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(__import__(module, fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of `__all__`, and those of the five floors that are loaded."""
    return sorted({*globals(), *__all__})
