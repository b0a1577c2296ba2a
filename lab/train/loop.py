"""Shared by all trainings with transformers' Trainer: arguments, checkpoints, progress.

A training works in a folder beside its output, `OUTPUT.training`, so that the output appears whole or not at all. Each
phase has a folder in it, with the Trainer's checkpoints: one after each epoch, every `SAVE_EVERY_S` and after an
interrupt; the best and the last are kept. A training that was stopped or killed continues from the last one. Optimiser
states are torch's own files, read with `weights_only`: no code in them runs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...core.errors import InvalidData, UsageError, require
from ...core.files import check_folder, write_text
from ...core.models import FoundModel, best_device, check_device, cpu_has_bfloat16, load_transformer, loading_quietly
from ...core.runtime import OnProgress, Runtime
from ...core.text import json_line
from .options import TrainingOptions

WEIGHTS = "trainable.safetensors"
BEST = "best.safetensors"
"""In a phase's folder: what it left in the model."""
STATE = "trainer_state.json"
"""The file that the Trainer writes into a checkpoint last."""
SAVE_EVERY_S = 600
VALUE = "eval_value"
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a training, in a folder of its own."""

    name: str
    epochs: int


@dataclass(frozen=True, slots=True)
class Trained:
    """How a phase went. `history` has (step, epoch, value of the development metric), starting with the untrained
    state; `log` has what the Trainer logged."""

    phase: str
    steps: int
    best_step: int
    history: tuple[tuple[int, float, float], ...]
    seconds: float
    log: tuple[dict[str, Any], ...] = ()

    @property
    def measured(self) -> bool:
        """False if no claims were there to measure on: the values are NaN, and the last weights were kept."""
        return not math.isnan(self.history[0][2])

    @property
    def gained(self) -> bool:
        """Whether some epoch was better than what the phase began with, or nothing was measured."""
        if not self.measured:
            return True
        return max(value for _, _, value in self.history[1:]) > self.history[0][2]

    def to_dict(self) -> dict[str, Any]:
        """As `ccheck train --json` prints it."""
        return {
            "phase": self.phase,
            "steps": self.steps,
            "best_step": self.best_step,
            "seconds": round(self.seconds, 1),
        }


def require_training() -> None:
    """Raises MissingExtra without the libraries of training."""
    needed = ("torch", "sentence_transformers", "accelerate", "datasets", "peft", "ir_measures")
    require("training", "train", *needed)


HEADS = frozenset({"classifier", "score", "pooler", "head", "pre_classifier", "classification_head"})
"""Names of the parts after an encoder, which may be new."""


def classifier_to_train(found: FoundModel, what: str, seed: int, **head: Any) -> tuple[Any, Any, bool]:
    """A sequence classifier of transformers with this head, its tokenizer, and whether the head is new.

    What is new is drawn by the seed. Raises InvalidData for a base that is not an encoder, whole.
    """
    import torch

    torch.manual_seed(seed)
    kind, base = "AutoModelForSequenceClassification", f"base for a {what}"
    return load_transformer(found.path, kind, base, heads=HEADS, ignore_mismatched_sizes=True, **head)


@dataclass(frozen=True, slots=True)
class Training:
    """The phases of a training work in the folder `work`.

    `evaluate` gives the development metric of the model as it is, which chooses the weights to keep; None: the last.
    """

    work: Path
    options: TrainingOptions
    runtime: Runtime
    evaluate: Callable[[], float] | None = None

    @property
    def device(self) -> str:
        """`cpu`, `cuda` or `mps`. Raises UsageError for an unknown device, or for one with a number."""
        device = self.runtime.device or best_device()
        if ":" in device:
            raise UsageError(
                f"training can't use {device}. Use {device.partition(':')[0]}, and CUDA_VISIBLE_DEVICES to choose one"
            )
        check_device(device)
        return device

    @property
    def precision(self) -> str:
        """`bf16`, `fp16` or `no`, for the forward pass; weights and optimiser stay float32.

        float16 needs a GPU. Elsewhere it means auto.
        """
        import torch

        wanted = self.options.precision
        if wanted == "float32":
            return "no"
        if self.device == "cuda":
            return "fp16" if wanted == "float16" or not torch.cuda.is_bf16_supported() else "bf16"
        return "bf16" if wanted == "bfloat16" or (self.device == "cpu" and cpu_has_bfloat16()) else "no"

    @contextlib.contextmanager
    def judging(self, model: Any) -> Iterator[None]:
        """Within it, the model is used as it is: in the training's precision, without gradients and dropout."""
        import torch

        dtype = torch.float16 if self.precision == "fp16" else torch.bfloat16
        was_training = model.training
        model.eval()
        with torch.inference_mode(), torch.autocast(self.device, dtype, enabled=self.precision != "no"):
            yield
        model.train(was_training)

    def arguments(self, phase: Phase, rows: int) -> dict[str, Any]:
        """The arguments of a Trainer of transformers."""
        options = self.options
        steps = math.ceil(math.ceil(rows / options.batch) / options.accumulate)
        return {
            "output_dir": str(self.work / phase.name / "checkpoints"),
            "num_train_epochs": phase.epochs,
            "per_device_train_batch_size": options.batch,
            "gradient_accumulation_steps": options.accumulate,
            "learning_rate": options.learning_rate,
            "lr_scheduler_type": SCHEDULES[options.schedule],
            "warmup_steps": options.warmup,
            "weight_decay": options.weight_decay,
            "max_grad_norm": options.clip,
            "optim": "adamw_torch",
            "seed": options.seed,
            "data_seed": options.seed,
            "bf16": self.precision == "bf16",
            "fp16": self.precision == "fp16",
            "use_cpu": self.device == "cpu",
            **({_checkpointing_name(): True} if options.gradient_checkpointing else {}),
            "save_strategy": "epoch",
            "save_total_limit": 2,
            "metric_for_best_model": VALUE,
            "greater_is_better": True,
            "logging_steps": max(1, steps // 20),
            "logging_nan_inf_filter": False,
            "report_to": [],
            "disable_tqdm": True,
            "dataloader_pin_memory": self.device == "cuda",
        }

    def run(self, phase: Phase, make_trainer: Callable[[], Any]) -> Trained:
        """Train, or go on training, and leave the best weights in the trainer's model, which then drops nothing out.

        A finished phase is only loaded. Raises UsageError if the loss is not finite or memory is too small.
        """
        import torch
        from transformers.trainer_callback import PrinterCallback

        folder = self.work / phase.name
        done = folder / "done.json"
        started, begins = time.monotonic(), math.nan
        if self.evaluate is not None and not done.is_file():
            begins = self._measured(phase, 0)
        trainer = make_trainer()
        if done.is_file():
            load_weights(trainer.model, folder / BEST)
            data = json.loads(done.read_text(encoding="utf-8"))
            return Trained(**{**data, "history": tuple(map(tuple, data["history"])), "log": tuple(data["log"])})
        trainer.remove_callback(PrinterCallback)
        if self.evaluate is not None:
            trainer.development = lambda: self._measured(phase, trainer.state.epoch)
            trainer.args.eval_strategy, trainer.args.load_best_model_at_end = trainer.args.save_strategy, True
        checkpoint = last_checkpoint(folder / "checkpoints")
        if checkpoint is not None:
            self.runtime.notify(f"{phase.name}: continuing after step {_step_of(checkpoint)}")
            logged = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["log_history"]
            started -= max((row.get("seconds", 0.0) for row in logged), default=0.0)
        try:
            with (
                self.runtime.progress(phase.name, "steps") as on_progress,
                loading_quietly(),
                warnings.catch_warnings(),
                _stopping(self.runtime.notify) as interrupts,
            ):
                # Of transformers and torch to those who call them: nothing that a user could change.
                warnings.simplefilter("ignore")
                trainer.add_callback(_told(on_progress, started, interrupts))
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except torch.OutOfMemoryError as error:
            raise UsageError(
                f"batches of {self.options.batch} do not fit into the device's memory. Halve batch and double "
                "accumulate, or set gradient_checkpointing = true"
            ) from error
        state = trainer.state
        trainer.model.eval()  # what is measured now is what is saved
        save_weights(trainer.model, folder / BEST)
        values = [(row["step"], row["epoch"], row[VALUE]) for row in state.log_history if VALUE in row]
        best = state.global_step if self.evaluate is None else _step_of(Path(state.best_model_checkpoint))
        history = [(0, 0.0, begins), *(values or [(state.global_step, state.epoch, math.nan)])]
        seconds = time.monotonic() - started
        trained = Trained(
            phase.name, state.global_step, best, tuple(history), seconds, tuple(map(dict, state.log_history))
        )
        write_text(done, json.dumps(asdict(trained)))
        return trained

    def _measured(self, phase: Phase, epoch: float) -> float:
        assert self.evaluate is not None
        value = self.evaluate()
        self.runtime.notify(f"{phase.name}, epoch {epoch:.4g}: {self.options.metric} {value:.4f}")
        return value


def _checkpointing_name() -> str:
    """transformers' name for gradient checkpointing, which changed in transformers 5."""
    from transformers import TrainingArguments

    new = "activation_checkpointing"
    return new if new in TrainingArguments.__dataclass_fields__ else "gradient_checkpointing"


def _trainable(model: Any) -> dict[str, Any]:
    """The parameters that are trained, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def save_weights(model: Any, file: Path) -> None:
    """The trained parameters as safetensors, whole or not at all."""
    from safetensors.torch import save_file

    temporary = file.with_suffix(".tmp")
    save_file({name: value.detach().cpu().contiguous() for name, value in _trainable(model).items()}, temporary)
    temporary.replace(file)


def load_weights(model: Any, file: Path) -> None:
    """Loads a file of `save_weights` into the same model."""
    import torch
    from safetensors.torch import load_file

    saved, own = load_file(file), _trainable(model)
    if saved.keys() != own.keys():
        raise UsageError(f"{file} was saved with other settings. Remove its folder to start again")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])


def checkpointing(trainer_class: type[Any]) -> type[Any]:
    """A Trainer whose checkpoints hold the trained parameters, whatever the model is made of.

    Its loss is the mean of a batch: several batches that make a step are averaged. It measures with `development`,
    which `Training.run` sets.
    """

    class Checkpointing(trainer_class):  # type: ignore[misc] # which Trainer it is is known when it is called
        development: Callable[[], float]

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.model_accepts_loss_kwargs = False

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            was_training = self.model.training
            self.model.eval()
            found = {VALUE: self.development()}
            self.model.train(was_training)
            self.log(found)
            self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
            return found

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_weights(self.model, folder / WEIGHTS)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            load_weights(self.model, Path(resume_from_checkpoint) / WEIGHTS)

        def _load_best_model(self) -> None:
            load_weights(self.model, Path(self.state.best_model_checkpoint) / WEIGHTS)

    return Checkpointing


def last_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint that was written to its end."""
    return max((path.parent for path in folder.glob(f"checkpoint-*/{STATE}")), key=_step_of, default=None)


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def _stopping(notify: Callable[[str], object]) -> Iterator[list[int]]:
    """The signals that came within it: the first one only asks for a checkpoint, the second one interrupts."""
    came: list[int] = []
    both, interrupt = (signal.SIGINT, signal.SIGTERM), signal.default_int_handler
    alone = threading.current_thread() is threading.main_thread()  # which takes all signals
    taken = [one for one in both if alone and signal.getsignal(one) is interrupt]

    def take(number: int, frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        # In a thread, since this one may be writing.
        said = "stopping at the next checkpoint, after this step. Interrupt again to stop at once, without it"
        threading.Thread(target=notify, args=(said,)).start()

    for one in taken:
        signal.signal(one, take)
    try:
        yield came
    finally:
        for one in taken:
            signal.signal(one, interrupt)
    if came:
        raise KeyboardInterrupt


def _told(on_progress: OnProgress, started: float, interrupts: Sequence[int]) -> Any:
    """A callback that moves a bar, logs the seconds so far, asks for checkpoints, and ends a training that diverged or,
    with a checkpoint, one that was interrupted."""
    from transformers import TrainerCallback

    class Told(TrainerCallback):  # type: ignore[misc, unused-ignore] # untyped where transformers is not installed
        saved = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            on_progress(state.global_step, state.max_steps)
            # The last step of an epoch is saved once it is measured: to continue from it means from the next epoch.
            if state.epoch % 1:
                control.should_save = bool(interrupts) or time.monotonic() - self.saved >= SAVE_EVERY_S

        def on_save(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            self.saved = time.monotonic()
            if interrupts:
                raise KeyboardInterrupt

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **parts: Any) -> None:
            state.log_history[-1]["seconds"] = round(time.monotonic() - started, 1)
            loss = (logs or {}).get("loss")
            if loss is not None and not math.isfinite(float(loss)):
                raise UsageError(
                    f"training diverged: the loss is {loss} after step {state.global_step}. Lower learning_rate"
                )

    return Told()


# -- the folder that a training works in, and the model that it leaves: whole, or not at all

SETTINGS = "settings.json"
LOCK = ".ccheck-lock"


@dataclass(frozen=True, slots=True)
class Output:
    """The folder that a training writes. `resume` continues a stopped one."""

    folder: Path
    resume: bool = False


@contextmanager
def work_folder(wanted: Output, settings: str) -> Iterator[Path]:
    """`OUTPUT.training`, new or to continue in, for this training alone.

    Raises UsageError for an output that is there, for an unfinished training without `resume`, and while another one
    works there.
    """
    from filelock import FileLock

    output, resume = wanted.folder, wanted.resume
    work = output.with_name(f"{output.name}.training")
    check_folder(output, "the model")
    check_folder(work, "the training")
    _refuse(output)
    if work.exists() and not _is_training(work):
        raise UsageError(f"{work} is not a training folder of ccheck. Choose another output, or remove this folder")
    work.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(work / LOCK, mode=0o600, thread_local=False).acquire(timeout=0)
    except TimeoutError:
        raise UsageError(f"another training works in {work}. Wait until it is done, or choose another output") from None
    with held:
        _refuse(output)  # by the one that worked here until now
        if _begun(work) and not resume:
            raise UsageError(
                f"{work} contains an unfinished training. Use --resume to continue it, or remove it to start again"
            )
        for file in () if resume else work.iterdir():
            if file.name != LOCK:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        saved = work / SETTINGS
        if not saved.is_file():
            write_text(saved, settings)
        elif (kept := saved.read_text(encoding="utf-8")) != settings:
            old, new = (json.loads(one)["options"] for one in (kept, settings))
            other = [f"{name} was {old.get(name)}" for name, value in new.items() if old.get(name) != value]
            raise UsageError(
                f"{work} contains a training with other settings or data ({', '.join(other) or 'the data differ'}). "
                "Use the same ones, or remove it to start again"
            )
        try:
            yield work
        except KeyboardInterrupt as stop:
            there, none = "Use --resume to continue from the last checkpoint", "There was no checkpoint to resume from"
            raise KeyboardInterrupt(f"interrupted. {there if _begun(work) else none}") from stop


def _begun(work: Path) -> bool:
    """Whether there is something to resume: there is not before the first checkpoint."""
    return any(work.glob(f"*/checkpoints/*/{STATE}")) or any(work.glob("*/done.json"))


def _refuse(output: Path) -> None:
    if output.exists():
        raise UsageError(f"{output} already exists. Choose another output, or remove it")


def _is_training(work: Path) -> bool:
    """Whether the folder belongs to a training, maybe one that was killed before it wrote its settings."""
    return (work / SETTINGS).is_file() or all(file.name.startswith(".ccheck-") for file in work.iterdir())


def finish(work: Path, output: Path, save: Callable[[Path], object], card: str, phases: Sequence[Trained]) -> None:
    """Save a model with its card and log, move it to its place whole, and remove the work folder."""
    made = work / "model"
    if made.exists():
        shutil.rmtree(made)
    made.mkdir()
    save(made)
    write_text(made / "README.md", card)
    rows = [{"phase": phase.phase, **row} for phase in phases for row in phase.log]
    write_text(made / "log.jsonl", "".join(map(json_line, rows)))
    strange = [file.name for file in made.rglob("*") if file.suffix in (".bin", ".pt", ".pth", ".pkl")]
    if strange:
        raise InvalidData(
            f"the model was not saved, because it would include {', '.join(strange)}, which are not safetensors files"
        )
    # safetensors writes files that nobody else may read.
    mask = os.umask(0)
    os.umask(mask)
    for file in made.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
    made.replace(output)
    shutil.rmtree(work)
