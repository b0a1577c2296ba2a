"""Stances from a sequence classifier on this machine: for natural language inference, or trained on claims.

The document is the premise and the claim the hypothesis. A document that is longer than the model reads is cut into
windows of whole sentences, each with the title first. The window with the lowest probability of NOT_ENOUGH_INFO counts.
Of long documents, only the `MAX_WINDOWS` windows that share most with the claim are read.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.analysis import clean, sentence_spans
from ..core.errors import InvalidData, NotFound
from ..core.models import best_device, cpu_has_bfloat16, load_transformer, positions, require_models
from ..core.runtime import Runtime
from ..core.special_tokens import words_only
from ..core.types import Document, Label, Stance, document_text
from .evidence import nearest_in_words
from .judge import NO_TEXT, PairStances, likeliest
from .labels import STANCES, parse_stance

# By licence, size and training: MIT; of the size of a base model; trained on MultiNLI, FEVER-NLI and ANLI, so on facts
# to verify and not on pictures' captions alone. The smaller cross-encoder/nli-deberta-v3-xsmall and -small (Apache-2.0)
# never saw facts to verify; MoritzLaurer's xsmall is binary and can't tell open from refuted.
DEFAULT_STANCE_MODEL = "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"
"""The model with which `auto` reads documents."""
MAX_TOKENS = 512
"""How many tokens of claim and document are read at a time, where the model allows it."""
MAX_WINDOWS = 16
BATCH_TOKENS = 4096
"""Tokens in one forward pass, with padding."""


@dataclass(frozen=True, slots=True)
class _Window:
    """A premise to read, with its pair of claim and document and its approximate length."""

    pair: int
    premise: str
    claim: str
    tokens: int


class StanceClassifier(PairStances):
    """Tells what documents say about claims, with a classifier of three labels."""

    def __init__(self, name: str, runtime: Runtime, *, max_tokens: int | None = None, half: bool | None = None) -> None:
        """Find the model and read what its labels are; its weights are loaded with the first claim.

        `max_tokens` is how much is read at a time, where the model has no lower limit. `half`: calculate in bfloat16,
        by default on a processor that does so itself (two fifths of the time; probabilities differ by up to .002).

        Raises MissingExtra without torch, NotFound if the model or its safetensors weights are missing,
        InvalidData where its labels are not the three that are needed, and, when it loads, UsageError for a device
        that does not exist.
        """
        require_models("judging with a stance model")
        found = runtime.find(name)
        if not any(found.path.glob("*.safetensors")):
            raise NotFound(
                f"{found.path} holds no safetensors weights, and ccheck loads no other format. Convert the model with "
                "save_pretrained, or choose another one"
            )
        self.path = found.path
        self.name = f"stance:{found.shown}"
        self.labels = read_labels(self.path)
        self.english_only = name == DEFAULT_STANCE_MODEL
        self._runtime = runtime
        self._max_tokens, self._half = max_tokens, half

    def read(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        """See `PairStances`."""
        windows: list[_Window] = []
        errors: dict[int, str] = {}
        for pair, (claim, document) in enumerate(pairs):
            claim = clean(claim)
            room = self._room(claim)
            if room >= self.max_tokens // 4:
                found = self._windows(document, claim, room)
                windows += [_Window(pair, premise, claim, tokens) for premise, tokens in found]
            else:
                errors[pair] = (
                    f"the claim is too long for {self.name}, which reads {self.max_tokens} tokens of claim and "
                    "document. Shorten the claim"
                )
        rows: dict[int, list[tuple[float, ...]]] = {}
        for window, outcome in zip(windows, self._probabilities(windows), strict=True):
            if isinstance(outcome, str):
                errors[window.pair] = outcome
            else:
                rows.setdefault(window.pair, []).append(outcome)
        return [
            self._stance(rows[pair])
            if pair in rows and pair not in errors
            else Stance(None, error=errors.get(pair, NO_TEXT))
            for pair in range(len(pairs))
        ]

    def _stance(self, windows: Sequence[tuple[float, ...]]) -> Stance:
        """The stance of the window that says most."""
        neutral = self.labels.index("NOT_ENOUGH_INFO")
        values = min(windows, key=lambda values: values[neutral])
        return likeliest([values[self.labels.index(label)] for label in STANCES])

    # -- what a training changes

    def premises(self, document: Document, claim: str) -> list[str]:
        """The windows of a document that the model reads; none if the claim leaves too little room for them."""
        room = self._room(claim)
        return [premise for premise, _ in self._windows(document, claim, room)] if room >= self.max_tokens // 4 else []

    # -- reading

    def _room(self, claim: str) -> int:
        """How many tokens of a document can be read beside a claim."""
        return self.max_tokens - int(self.tokenizer.num_special_tokens_to_add(pair=True)) - self._count([claim])[0]

    @functools.cached_property
    def max_tokens(self) -> int:
        """How many tokens of claim and document are read at a time."""
        limit = min(self.tokenizer.model_max_length, positions(self.network.config) or MAX_TOKENS)
        return int(min(limit, self._max_tokens or MAX_TOKENS))

    def _count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special ones left out."""
        return [len(ids) for ids in self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]]

    def _windows(self, document: Document, claim: str, room: int) -> list[tuple[str, int]]:
        """The premises of a document that fit into `room` tokens, each with its length."""
        title = clean(document.title).strip()
        text = clean(document.text).strip()
        if title and text and title[-1] not in ".?!:":
            title += "."
        whole = document_text(title, text).strip()
        if not whole:
            return []
        # A token has at least a character, so short ones need no counting; long ones are not counted twice.
        tokens = self._count([whole])[0] if len(whole) <= 20 * room else room + 1
        if tokens <= room:
            return [(whole, tokens)]
        head = self._count([title])[0] if title else 0
        if head > room // 4:
            title, head = "", 0
        pieces = [
            piece
            for start, end in sentence_spans(text or whole)
            for piece in self._fit((text or whole)[start:end], room - head)
        ]
        windows: list[tuple[str, int]] = []
        held: list[str] = []
        length = head
        for piece, count in pieces:
            if held and length + count > room:
                windows.append((document_text(title, " ".join(held)), length))
                held, length = [], head
            held.append(piece)
            length += count
        windows.append((document_text(title, " ".join(held)), length))
        best = nearest_in_words(claim, [premise for premise, _ in windows], MAX_WINDOWS)
        return [windows[number] for number in best]

    def _fit(self, sentence: str, room: int) -> list[tuple[str, int]]:
        """The sentence, or, if it is longer than `room` tokens, pieces of it that are not."""
        count = self._count([sentence])[0]
        if count <= room:
            return [(sentence, count)]
        middle = len(sentence) // 2
        space = sentence.rfind(" ", 0, middle)
        middle = space if space > 0 else middle
        if middle == 0:
            return []
        return self._fit(sentence[:middle].strip(), room) + self._fit(sentence[middle:].strip(), room)

    # -- the model

    def _probabilities(self, windows: Sequence[_Window]) -> list[tuple[float, ...] | str]:
        """For each window the probabilities in the order of the model's labels, or why there are none."""
        answer: list[tuple[float, ...] | str] = [""] * len(windows)
        order = sorted(range(len(windows)), key=lambda number: -windows[number].tokens)
        start = 0
        while start < len(order):
            longest = windows[order[start]].tokens + self._count([windows[order[start]].claim])[0] + 4
            batch = order[start : start + max(1, BATCH_TOKENS // longest)]
            start += len(batch)
            for number, outcome in zip(batch, self._forward([windows[number] for number in batch]), strict=True):
                answer[number] = outcome
        return answer

    def _forward(self, windows: Sequence[_Window]) -> list[tuple[float, ...] | str]:
        import torch

        inputs = self.tokenizer(
            [window.premise for window in windows],
            [window.claim for window in windows],
            # The windows fit except for a token or two where sentences join.
            truncation="only_first",
            max_length=self.max_tokens,
            padding=True,
            return_tensors="pt",
        ).to(self.network.device)
        try:
            with (
                torch.inference_mode(),
                torch.autocast(self.network.device.type, torch.bfloat16, enabled=self._in_half),
            ):
                values = self.network(**inputs).logits.float().softmax(-1).cpu().tolist()
        except torch.OutOfMemoryError:
            if len(windows) == 1:
                return [f"the document is too large for {self.name} in the memory of {self.network.device}"]
            half = len(windows) // 2
            return self._forward(windows[:half]) + self._forward(windows[half:])
        return [
            tuple(row) if all(map(math.isfinite, row)) else f"{self.name} gave probabilities that are not numbers"
            for row in values
        ]

    @functools.cached_property
    def _in_half(self) -> bool:
        return self.network.device.type == "cpu" and cpu_has_bfloat16() if self._half is None else self._half

    @property
    def network(self) -> Any:
        """The model itself, in evaluation mode: what changes its weights changes what is said next."""
        return self._loaded[0]

    @property
    def tokenizer(self) -> Any:
        return self._loaded[1]

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """The model with its labels, and a tokenizer that pads and reads special tokens as words."""
        device = best_device(self._runtime.device)
        self._runtime.notify(f"loading {self.path.name}")
        kind, what = "AutoModelForSequenceClassification", "sequence classifier"
        model, tokenizer, _ = load_transformer(self.path, kind, what)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
            model.config.pad_token_id = tokenizer.pad_token_id
        words_only(tokenizer)
        return model.to(device), tokenizer


def read_labels(folder: Path) -> tuple[Label, ...]:
    """Our labels in the order of a model's outputs, by the names that its config.json gives them.

    Raises InvalidData if they are not the three stances.
    """
    file = folder / "config.json"
    try:
        names = json.loads(file.read_text(encoding="utf-8")).get("id2label") or {}
        outputs = [str(names[key]) for key in sorted(names, key=int)]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InvalidData(f"can't read the model configuration {file}: {error}") from error
    needed = '"id2label": {"0": "SUPPORTS", "1": "REFUTES", "2": "NOT_ENOUGH_INFO"}, in the order of its outputs'
    try:
        labels = tuple(parse_stance(name) for name in outputs)
    except InvalidData as error:
        raise InvalidData(
            f"the outputs of {folder} are named {', '.join(outputs)}, which ccheck does not know. If it is a stance "
            f"model, set in {file} {needed}"
        ) from error
    if sorted(labels) != sorted(STANCES):
        said = ", ".join(outputs) if outputs else "not named"
        raise InvalidData(
            f"the outputs of {folder} are {said}, but a stance model has three labels. In {file}, set {needed}"
        )
    return labels
