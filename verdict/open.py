"""From a resolved recipe's stage to a method that can judge."""

from __future__ import annotations

from ..core.errors import NotFound
from ..core.runtime import Runtime
from ..core.stages import VerdictStage
from .judge import StanceMethod


def open_method(stage: VerdictStage, runtime: Runtime) -> StanceMethod:
    """The method of a stage.

    Raises NotFound or MissingExtra for what is not installed, and UsageError for missing settings.
    """
    if stage.method == "llm":  # the language model itself is opened once
        return _calibrated(_opened(stage, runtime), stage)
    key = stage.model_dump_json(exclude={"documents"})
    return runtime.once("stances", key, make=lambda: _calibrated(_opened(stage, runtime), stage))


def _opened(stage: VerdictStage, runtime: Runtime) -> StanceMethod:
    if stage.method == "llm":
        from ..llm.model import open_llm
        from .llm import LlmStances

        return LlmStances(open_llm(runtime, stage.model), stage)
    from .classifier import StanceClassifier
    from .packaged_model import PACKAGED, PackagedStances

    name = stage.model or default_stance_model()
    return PackagedStances(runtime) if name == PACKAGED else StanceClassifier(name, runtime)


def default_stance_model() -> str:
    """The stance model if none is named: the classifier, if it is on this machine, else the packaged model."""
    from ..core.models import find_model, models_installed
    from .classifier import DEFAULT_STANCE_MODEL
    from .packaged_model import PACKAGED

    if not models_installed():
        return PACKAGED
    try:
        find_model(DEFAULT_STANCE_MODEL, download=False)
    except NotFound:
        return PACKAGED
    return DEFAULT_STANCE_MODEL


def _calibrated(method: StanceMethod, stage: VerdictStage) -> StanceMethod:
    if stage.calibration is None:
        return method
    from .calibration import calibrated, load_calibration

    return calibrated(method, load_calibration(stage.calibration))
