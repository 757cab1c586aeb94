"""Types of the names that `import forerun` offers; `__init__.py` loads each at its first use."""

from forerun.data.device import Device as Device
from forerun.data.errors import InputError as InputError
from forerun.service.python import tune as tune
from forerun.service.python.answer import Answer as Answer
from forerun.service.python.answer import Answers as Answers
from forerun.service.python.answer import Comparison as Comparison
from forerun.service.python.asking import compare as compare
from forerun.service.python.asking import fits as fits
from forerun.service.python.asking import predict as predict
from forerun.service.python.asking import rank as rank
from forerun.service.python.asking import sweep as sweep
from forerun.service.python.colocation import ColocationAnswer as ColocationAnswer
from forerun.service.python.colocation import colocate as colocate
from forerun.service.python.device_list import Devices as Devices
from forerun.service.python.device_list import devices as devices
from forerun.service.python.own_measurements.adapting import Adaptation as Adaptation
from forerun.service.python.own_measurements.adapting import Collected as Collected
from forerun.service.python.own_measurements.adapting import Drift as Drift
from forerun.service.python.own_measurements.adapting import Observations as Observations
from forerun.service.python.own_measurements.adapting import adapt as adapt
from forerun.service.python.own_measurements.adapting import collect as collect
from forerun.service.python.own_measurements.adapting import drift as drift
from forerun.service.python.own_measurements.adapting import observe as observe
from forerun.service.python.own_measurements.measuring import Measurement as Measurement
from forerun.service.python.own_measurements.measuring import measure as measure
from forerun.service.python.own_measurements.verifying import Verification as Verification
from forerun.service.python.own_measurements.verifying import verify as verify
from forerun.service.python.pipelines import Pipeline as Pipeline
from forerun.service.python.pipelines import pipeline as pipeline
from forerun.service.python.planning import ServingPlan as ServingPlan
from forerun.service.python.planning import llm_plan as llm_plan
from forerun.service.python.ranking import Ranking as Ranking
from forerun.service.python.ranking import Sweep as Sweep
from forerun.service.python.serving import ServingAnswer as ServingAnswer
from forerun.service.python.serving import diffusion as diffusion
from forerun.service.python.serving import llm as llm
from forerun.service.python.training import TrainingAnswer as TrainingAnswer
from forerun.service.python.training import TrainingPlan as TrainingPlan
from forerun.service.python.training import llm_training as llm_training
from forerun.service.python.training import training_plan as training_plan
from forerun.service.python.view import Estimate as Estimate
from forerun.service.python.view import Fit as Fit

__version__: str
__all__: tuple[str, ...]
