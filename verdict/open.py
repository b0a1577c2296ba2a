"""From a recipe's stage and the settings to a method that can judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..core.errors import MissingExtra, NotFound, UsageError
from ..core.settings import Settings
from ..core.stages import VerdictStage
from ..core.types import Claim, Evidence, Usage, Verdict
from .conclude import conclude
from .judge import StanceMethod

if TYPE_CHECKING:
    from ..core.types import Vector
    from ..llm import LanguageModel

NOT_SET_UP = (
    "no verdict model is configured. Use --llm MODEL for a language model (and OPENAI_BASE_URL for its server), or "
    "--stance FOLDER for a stance model"
)

LanguageModels: TypeAlias = "Callable[[str | None], LanguageModel]"
Conclude: TypeAlias = Callable[[Claim, Sequence[Evidence]], tuple[Verdict, Usage]]


def open_conclusion(stage: VerdictStage, language_model: LanguageModels, method: str) -> Conclude:
    """The function that makes a claim's verdict from its evidence with stances: the rule, or a language model."""
    if stage.conclude == "rule":
        return lambda claim, evidence: (conclude(evidence, method), Usage())
    from .llm import conclude_by_model

    llm = language_model(stage.model if stage.method == "llm" else None)
    return lambda claim, evidence: conclude_by_model(llm, claim, evidence)


def open_method(
    stage: VerdictStage,
    settings: Settings,
    language_model: LanguageModels,
    notify: Callable[[str], None] = lambda message: None,
    embed: Callable[[Sequence[str]], Vector] | None = None,
) -> StanceMethod:
    """The method of a stage. `language_model` gives the one of a name; `embed` serves examples that are chosen by
    similarity.

    Raises NotFound or MissingExtra for what is not installed, and UsageError for missing settings. With `auto`, they
    mean that nothing is configured, and the message says what to do.
    """
    method = stage.method
    if method == "auto":
        method = "llm" if settings.llm_model or stage.model else "stance"
        if method == "stance" and settings.stance_model is None:
            try:
                return _calibrated(_stance(stage, settings, notify), stage)
            except (MissingExtra, NotFound) as error:
                raise NotFound(f"{NOT_SET_UP}. The packaged stance model can't run here: {error}") from error
    if method == "llm":
        from .llm import LlmStances

        made: StanceMethod = LlmStances(language_model(stage.model), stage, embed)
    elif method == "stance":
        made = _stance(stage, settings, notify)
    else:
        raise UsageError(f"unknown verdict method {method!r}")
    return _calibrated(made, stage)


def default_stance_model() -> str:
    """The stance model if none is named: the classifier, if it is on this machine, else the packaged model."""
    from ..core.models import find_model, models_installed
    from .classifier import DEFAULT_STANCE_MODEL
    from .packaged_model import PACKAGED

    if not models_installed():
        return PACKAGED
    try:
        find_model(DEFAULT_STANCE_MODEL, allow_download=False)
    except NotFound:
        return PACKAGED
    return DEFAULT_STANCE_MODEL


def _stance(stage: VerdictStage, settings: Settings, notify: Callable[[str], None]) -> StanceMethod:
    from .packaged_model import PACKAGED, PackagedStances

    name = stage.model or settings.stance_model or default_stance_model()
    if name == PACKAGED:
        return PackagedStances(on_load=lambda: notify("loading the packaged stance model"))
    from .classifier import StanceClassifier

    return StanceClassifier(name, device=settings.device, on_load=lambda: notify(f"loading {name}"))


def _calibrated(method: StanceMethod, stage: VerdictStage) -> StanceMethod:
    if stage.calibration is None:
        return method
    from .calibration import calibrated, load_calibration

    return calibrated(method, load_calibration(stage.calibration))
