"""Shared by all trainings with transformers' Trainer: precision, checkpoints, the best epoch, a log, progress.

A training works in a folder beside its output, `OUTPUT.training`, so that the output appears whole or not at all. Each
phase has a folder in it. A checkpoint counts once its mark is written. A training that was killed continues from the
last one that counts, with the same order of rows, random numbers and optimiser state, and ends with the same weights.
Optimiser states are torch's own files, read with `weights_only`: no code in them runs.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import importlib.util
import io
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ...core.errors import UsageError
from ...core.extras import require
from ...core.files import write_text
from ...core.models import best_device, check_device, cpu_has_bfloat16, loading_quietly
from .options import TrainingOptions

MARK = "whole"
"""The file that is written into a checkpoint last."""
WEIGHTS = "trainable.safetensors"
BEST = "best.safetensors"
"""In a phase's folder: what it left in the model."""
COLUMNS = ("phase", "step", "epoch", "loss", "learning_rate", "grad_norm", "metric", "value", "seconds")
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


class Listener(Protocol):
    """Is told how a training goes."""

    def step(self, phase: str, step: int, steps: int, loss: float | None, seconds_left: float | None) -> None: ...

    def measured(self, phase: str, epoch: float, metric: str, value: float) -> None: ...

    def message(self, text: str) -> None: ...


class Silent:
    """Ignores it."""

    def step(self, phase: str, step: int, steps: int, loss: float | None, seconds_left: float | None) -> None:
        pass

    def measured(self, phase: str, epoch: float, metric: str, value: float) -> None:
        pass

    def message(self, text: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Trained:
    """How a phase went. `history` has (step, epoch, value of the development metric), starting with the untrained
    state."""

    phase: str
    steps: int
    best_step: int
    history: tuple[tuple[int, float, float], ...]
    seconds: float

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


def require_training() -> None:
    """Raises MissingExtra without the libraries of training."""
    needed = ("torch", "sentence_transformers", "accelerate", "datasets", "peft", "ir_measures")
    require("training", "train", *needed)


def training_device(name: str | None) -> str:
    """`cpu`, `cuda` or `mps`. Raises UsageError for an unknown device, or for one with a number."""
    device = name or best_device()
    if ":" in device:
        raise UsageError(
            f"training can't use {device}. Use {device.partition(':')[0]}, and CUDA_VISIBLE_DEVICES to choose one"
        )
    check_device(device)
    return device


def mixed_precision(options: TrainingOptions, device: str) -> str:
    """`bf16`, `fp16` or `no`, for the forward pass; weights and optimiser stay float32.

    float16 needs a GPU. Elsewhere it means auto.
    """
    import torch

    if options.precision == "float32":
        return "no"
    if device == "cuda":
        return "fp16" if options.precision == "float16" or not torch.cuda.is_bf16_supported() else "bf16"
    if options.precision == "bfloat16":
        return "bf16"
    return "bf16" if device == "cpu" and cpu_has_bfloat16() else "no"


@contextlib.contextmanager
def autocast(options: TrainingOptions, device: str) -> Iterator[None]:
    """The forward pass in the training's precision, without gradients."""
    import torch

    mode = mixed_precision(options, device)
    dtype = torch.float16 if mode == "fp16" else torch.bfloat16
    with torch.inference_mode(), torch.autocast(device, dtype, enabled=mode != "no"):
        yield


def arguments(
    options: TrainingOptions, folder: Path, device: str, *, epochs: int, learning_rate: float, rows: int
) -> dict[str, Any]:
    """The arguments of a Trainer of transformers."""
    mode = mixed_precision(options, device)
    steps = math.ceil(math.ceil(rows / options.batch) / options.accumulate)
    return {
        "output_dir": str(folder / "checkpoints"),
        "num_train_epochs": epochs,
        "per_device_train_batch_size": options.batch,
        "gradient_accumulation_steps": options.accumulate,
        "learning_rate": learning_rate,
        "lr_scheduler_type": SCHEDULES[options.schedule],
        "warmup_steps": options.warmup,
        "weight_decay": options.weight_decay,
        "max_grad_norm": options.clip,
        "optim": "adamw_torch",
        "seed": options.seed,
        "data_seed": options.seed,
        "bf16": mode == "bf16",
        "fp16": mode == "fp16",
        "use_cpu": device == "cpu",
        **({_checkpointing_name(): True} if options.gradient_checkpointing else {}),
        "save_strategy": "steps",
        "save_steps": options.checkpoint_steps,
        "save_total_limit": 2,  # one may be unfinished
        "logging_steps": max(1, steps // 20),
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": device == "cuda",
    }


def _checkpointing_name() -> str:
    """transformers' name for gradient checkpointing, which changed in transformers 5."""
    from transformers import TrainingArguments

    new = "activation_checkpointing"
    return new if new in TrainingArguments.__dataclass_fields__ else "gradient_checkpointing"


def trainable(model: Any) -> dict[str, Any]:
    """The parameters that are trained, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def save_weights(model: Any, file: Path) -> None:
    """The trained parameters as safetensors, whole or not at all."""
    from safetensors.torch import save_file

    temporary = file.with_suffix(".tmp")
    save_file({name: value.detach().cpu().contiguous() for name, value in trainable(model).items()}, temporary)
    temporary.replace(file)


def load_weights(model: Any, file: Path) -> None:
    """Loads a file of `save_weights` into the same model."""
    import torch
    from safetensors.torch import load_file

    saved, own = load_file(file), trainable(model)
    if saved.keys() != own.keys():
        raise UsageError(f"{file} was saved with other settings. Start again with --overwrite")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])


def checkpointing(trainer_class: type[Any]) -> type[Any]:
    """A Trainer whose checkpoints hold the trained parameters, whatever the model is made of.

    Its loss is the mean of a batch: several batches that make a step are averaged.
    """

    class Checkpointing(trainer_class):  # type: ignore[misc] # which Trainer it is is known when it is called
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.model_accepts_loss_kwargs = False

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_weights(self.model, folder / WEIGHTS)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            load_weights(self.model, Path(resume_from_checkpoint) / WEIGHTS)

    return Checkpointing


def run_phase(
    name: str,
    folder: Path,
    options: TrainingOptions,
    make_trainer: Callable[[], Any],
    evaluate: Callable[[], float] | None,
    listener: Listener,
) -> Trained:
    """Train, or go on training, and leave the best weights in the trainer's model, which then drops nothing out.

    `evaluate` gives the development metric of the model as it is; with None the last weights are kept. A finished phase
    is only loaded. Raises UsageError if the loss is not finite or memory is too small.
    """
    import torch

    trainer = make_trainer()
    done = folder / "done.json"
    if done.is_file():
        load_weights(trainer.model, folder / BEST)
        data = json.loads(done.read_text(encoding="utf-8"))
        return Trained(**{**data, "history": tuple(tuple(row) for row in data["history"])})
    watcher = _watcher_class()(name, folder, options, trainer.model, evaluate, listener)
    checkpoint = last_checkpoint(folder / "checkpoints")
    watcher.begin(checkpoint)
    trainer.add_callback(watcher)
    _remove_printer(trainer)
    started = time.monotonic()
    try:
        with loading_quietly(), warnings.catch_warnings():
            # Of transformers and torch to those who call them: nothing that a user could change.
            warnings.simplefilter("ignore")
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"batches of {options.batch} do not fit into the device's memory. Halve batch and double accumulate, or "
            "set gradient_checkpointing = true"
        ) from error
    best = watcher.best()
    load_weights(trainer.model, folder / f"best-{best}.safetensors")
    trainer.model.eval()  # what is measured now is what is saved
    save_weights(trainer.model, folder / BEST)
    trained = Trained(name, trainer.state.global_step, best, tuple(watcher.history), time.monotonic() - started)
    write_text(done, json.dumps(asdict(trained)))
    return trained


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a training, in a folder of its own."""

    name: str
    epochs: int
    learning_rate: float


def run_phases(
    phases: Sequence[Phase],
    model: Any,
    work: Path,
    options: TrainingOptions,
    make_trainer: Callable[[Phase], Any],
    evaluate: Callable[[], float] | None,
    listener: Listener,
) -> tuple[list[Trained], list[str]]:
    """Train the phases that have epochs, one after the other. A later one that gains nothing is undone, with a note.

    `make_trainer` makes a phase's trainer, and is called when it is its turn.
    """
    done: list[Trained] = []
    notes = []
    for phase in phases:
        if not phase.epochs:
            continue
        trainer = functools.partial(make_trainer, phase)
        trained = run_phase(phase.name, work / phase.name, options, trainer, evaluate, listener)
        if done and not trained.gained:
            load_weights(model, work / done[-1].phase / BEST)
            save_weights(model, work / phase.name / BEST)
            notes.append(f"the phase {phase.name} brought no gain in {options.metric} and was undone")
        done.append(trained)
    return done, notes


def last_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint that was written to its end."""
    found = [path.parent for path in folder.glob(f"checkpoint-*/{MARK}")]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def log_text(rows: list[dict[str, Any]]) -> str:
    """Rows of a log as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _remove_printer(trainer: Any) -> None:
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)


@functools.cache
def _watcher_class() -> type[Any]:
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):  # type: ignore[misc, unused-ignore] # untyped where transformers is not installed
        """Measures, keeps the best weights, logs, marks checkpoints that are whole."""

        def __init__(
            self,
            phase: str,
            folder: Path,
            options: TrainingOptions,
            model: Any,
            evaluate: Callable[[], float] | None,
            listener: Listener,
        ) -> None:
            self.phase, self.folder, self.options = phase, folder, options
            self.model, self.evaluate, self.listener = model, evaluate, listener
            self.history: list[tuple[int, float, float]] = []
            self.rows: list[dict[str, Any]] = []
            self.started = time.monotonic()
            self.first_step = 0
            self.loss: float | None = None
            self.board: Any = None

        def begin(self, checkpoint: Path | None) -> None:
            """Take up what a checkpoint had, or measure the untrained state."""
            self.folder.mkdir(parents=True, exist_ok=True)
            if checkpoint is None:
                self._measure(0, 0.0)
                return
            step = int(checkpoint.name.rpartition("-")[2])
            state = json.loads((checkpoint / MARK).read_text(encoding="utf-8"))
            self.history = [tuple(row) for row in state["history"]]
            self.rows = state["rows"]
            self.first_step = step
            self.listener.message(f"{self.phase}: continuing after step {step}")

        def best(self) -> int:
            """The step of the best weights, the untrained state's left out: the first of equals."""
            trained = self.history[1:]
            if self.evaluate is None:
                return trained[-1][0]
            return max(trained, key=lambda row: row[2])[0]

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            whole = args.num_train_epochs * self.options.evaluations
            due = {round(state.max_steps * part / whole) for part in range(1, round(whole) + 1)}
            done = state.global_step - self.first_step
            left = (time.monotonic() - self.started) / done * (state.max_steps - state.global_step)
            self.listener.step(self.phase, state.global_step, state.max_steps, self.loss, left)
            if state.global_step in due:
                self._measure(state.global_step, state.epoch)
                trained = [value for _, _, value in self.history[1:]]
                since = len(trained) - 1 - trained.index(max(trained))
                if self.evaluate and self.options.patience is not None and since >= self.options.patience:
                    self.listener.message(f"{self.phase}: stopped early, after {since} measurements without a gain")
                    control.should_training_stop = True

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **parts: Any) -> None:
            if not logs or "loss" not in logs:
                return
            self.loss = float(logs["loss"])
            if not math.isfinite(self.loss):
                raise UsageError(
                    f"training diverged: the loss is {self.loss} after step {state.global_step}. Lower learning_rate"
                )
            self._log(
                state.global_step,
                state.epoch,
                {name: logs[name] for name in ("loss", "learning_rate", "grad_norm") if name in logs},
            )

        def on_save(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_text(checkpoint / MARK, json.dumps({"history": self.history, "rows": self.rows}))
            # Weights that are not the best any more go only now: until here the checkpoint before could be needed.
            if len(self.history) > 1:
                for file in self.folder.glob("best-*.safetensors"):
                    if file.stem != f"best-{self.best()}":
                        file.unlink()

        def _measure(self, step: int, epoch: float) -> None:
            import torch

            if self.evaluate is None:
                self.history.append((step, epoch, math.nan))
                if step:
                    save_weights(self.model, self.folder / f"best-{step}.safetensors")
                return
            was_training = self.model.training
            self.model.eval()
            # What measuring draws must not change what training draws.
            devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
            with torch.random.fork_rng(devices):
                value = self.evaluate()
            self.model.train(was_training)
            self.history.append((step, epoch, value))
            if step and self.best() == step:
                save_weights(self.model, self.folder / f"best-{step}.safetensors")
            self.listener.measured(self.phase, epoch, self.options.metric, value)
            self._log(step, epoch, {"metric": self.options.metric, "value": value})

        def _log(self, step: int, epoch: float, values: dict[str, Any]) -> None:
            seconds = round(time.monotonic() - self.started, 1)
            self.rows.append(
                {"phase": self.phase, "step": step, "epoch": round(epoch, 3), **values, "seconds": seconds}
            )
            write_text(self.folder / "log.csv", log_text(self.rows))
            self._show(step, values)

        def _show(self, step: int, values: dict[str, Any]) -> None:
            """The same for TensorBoard, if it is installed."""
            if importlib.util.find_spec("tensorboard") is None:
                return
            if self.board is None:
                from torch.utils.tensorboard import SummaryWriter

                folder = self.folder.parent / "tensorboard" / self.phase
                self.board = SummaryWriter(str(folder), purge_step=self.first_step + 1 if self.first_step else None)
            for name, value in values.items():
                if isinstance(value, float):
                    self.board.add_scalar(self.options.metric if name == "value" else name, value, step)
            self.board.flush()

    return Watcher
