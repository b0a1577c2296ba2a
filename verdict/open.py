"""From a resolved recipe's stage to a method that can judge."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..core.errors import MissingExtra, NotFound, UsageError
from ..core.runtime import Runtime
from ..core.stages import VerdictStage
from ..core.types import Claim, Evidence, Usage, Verdict
from .conclude import conclude_by_rule
from .english import EnglishOnly
from .judge import StanceMethod

if TYPE_CHECKING:
    from ..core.types import Vector

NOT_SET_UP = (
    "no verdict model is configured. Use --llm MODEL for a language model (and OPENAI_BASE_URL for its server), or "
    "--stance FOLDER for a stance model"
)

Conclude: TypeAlias = Callable[[Claim, Sequence[Evidence]], tuple[Verdict, Usage]]


def open_conclusion(stage: VerdictStage, runtime: Runtime, method: str) -> Conclude:
    """The function that makes a claim's verdict from its evidence with stances: the rule, or a language model."""
    if stage.conclude == "rule":
        return functools.partial(conclude_by_rule, method)
    from ..llm import open_llm
    from .llm import conclude_by_model

    llm = open_llm(runtime, stage.model if stage.method == "llm" else None)
    return lambda claim, evidence: conclude_by_model(llm, claim, evidence)


def open_method(
    stage: VerdictStage,
    runtime: Runtime,
    embed: Callable[[Sequence[str]], Vector] | None = None,
) -> StanceMethod:
    """The method of a stage. `embed` serves examples that are chosen by similarity.

    Raises NotFound or MissingExtra for what is not installed, and UsageError for missing settings. With `auto`, they
    mean that nothing is configured, and the message says what to do.
    """
    key = stage.model_dump_json(exclude={"documents", "conclude"})
    return runtime.once("stances", key, make=lambda: _opened(stage, runtime, embed))


def _opened(stage: VerdictStage, runtime: Runtime, embed: Callable[[Sequence[str]], Vector] | None) -> StanceMethod:
    method = stage.method
    if method == "auto":  # no judge was chosen, see `core.adjust.filled`
        try:
            made: StanceMethod = _stance(stage, runtime)
        except (MissingExtra, NotFound) as error:
            raise NotFound(f"{NOT_SET_UP}. The packaged stance model can't run here: {error}") from error
    elif method == "llm":
        from ..llm import open_llm
        from .llm import LlmStances

        made = LlmStances(open_llm(runtime, stage.model), stage, embed)
    elif method == "stance":
        made = _stance(stage, runtime)
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
        find_model(DEFAULT_STANCE_MODEL, download=False)
    except NotFound:
        return PACKAGED
    return DEFAULT_STANCE_MODEL


def _stance(stage: VerdictStage, runtime: Runtime) -> StanceMethod:
    from .packaged_model import PACKAGED, PackagedStances

    name = stage.model or default_stance_model()
    if name == PACKAGED:
        return EnglishOnly(PackagedStances(runtime))
    from .classifier import DEFAULT_STANCE_MODEL, StanceClassifier

    made = StanceClassifier(name, runtime)
    return EnglishOnly(made) if name == DEFAULT_STANCE_MODEL else made


def _calibrated(method: StanceMethod, stage: VerdictStage) -> StanceMethod:
    if stage.calibration is None:
        return method
    from .calibration import calibrated, load_calibration

    return calibrated(method, load_calibration(stage.calibration))
