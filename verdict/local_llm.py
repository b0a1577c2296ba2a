"""Stances from a causal language model on this machine: the most likely answer, without generating text.

The model reads the document, the claim and the question, and the answers are compared by the mean log-likelihood of
their tokens. A model prefers some answers whatever it reads. Content-free inputs ("N/A", "[MASK]" and nothing at all in
place of claim and document) show how much, and each answer's probability is divided by its probability there (Zhao et
al., Calibrate Before Use, ICML 2021, section 4: W = diag(p_cf)^-1, b = 0).
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..core.analysis import clean
from ..core.errors import InvalidData
from ..core.models import load_transformer
from ..core.special_tokens import broken_up, special_tokens, words_only
from ..core.types import Label, Stance, Usage, document_text
from .judge import NO_TEXT, Case, Judged, likeliest
from .labels import STANCES
from .local_model import LocalModel

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROMPT = """Read the abstract of a paper and tell what it says of a claim.

Abstract: {document}

Claim: {claim}

Does the abstract support the claim, does it contradict the claim, or does it leave the claim open? \
Answer with one word: support, contradict or open."""
ANSWERS: dict[Label, str] = {"SUPPORTS": "support", "REFUTES": "contradict", "NOT_ENOUGH_INFO": "open"}
CONTENT_FREE = ("N/A", "[MASK]", "")
MAX_TOKENS = 2048
"""How much is read at a time, where the model allows it."""
MIN_DOCUMENT = 32
"""Tokens of a document below which it makes no sense to ask."""
_PLACES = ("\ue000document\ue000", "\ue000claim\ue000")
"""Where document and claim come to stand in the prompt: characters that no chat template has."""


class LocalLlm(LocalModel):
    """Tells what documents say about claims, from the likelihood of the answers. A `StanceMethod`."""

    def __init__(
        self,
        name: str,
        device: str | None = None,
        *,
        max_tokens: int = MAX_TOKENS,
        prompt: str = PROMPT,
        on_load: Callable[[], None] = lambda: None,
        allow_download: bool = True,
    ) -> None:
        """Find the model; its weights are loaded with the first claim, after `on_load`.

        `prompt` has {document} and {claim} once each. `device` as torch names it, by default the fastest there is.
        Raises MissingExtra without torch, NotFound if the model or its safetensors weights are missing,
        InvalidData for a prompt without its places, and, when it loads, UsageError for an unknown device.
        """
        for place in ("{document}", "{claim}"):
            if prompt.count(place) != 1:
                raise InvalidData(
                    f"the prompt of local-llm must contain {place} exactly once, not {prompt.count(place)} times"
                )
        super().__init__(name, "judging with a language model on this machine", device, on_load, allow_download)
        self.name = f"local-llm:{self.model_name}"
        self._prompt, self._max_tokens = prompt, max_tokens

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order. A document that can't be read gets a stance without a label. Raises
        CcheckError."""
        for case in cases:
            claim, tokens = self._content(case.claim.text), 0
            stances = []
            for evidence in case.evidence:
                stance, read = self._stance(claim, evidence.document.title, evidence.document.text)
                stances.append(stance)
                tokens += read
            yield Judged(tuple(stances), usage=Usage(prompt_tokens=tokens))

    def _stance(self, claim: list[int], title: str, text: str) -> tuple[Stance, int]:
        """The stance, and how many tokens were read for it."""
        content = " ".join(document_text(title, text).split())
        if not content:
            return Stance(None, error=NO_TEXT), 0
        room = self.max_tokens - len(claim) - self._fixed_tokens
        if room < MIN_DOCUMENT:
            error = f"the claim is too long for {self.name}, which reads {self.max_tokens} tokens. Shorten the claim"
            return Stance(None, error=error), 0
        # A token is at most some characters long; what can't be read need not be cut into tokens.
        document = self._content(content[: 32 * room])[:room]
        prompt = self._assemble(document, claim)
        raw = self._likelihoods(prompt)
        prior = self.prior
        if raw is None or prior is None:
            return Stance(None, error=f"{self.name} gave likelihoods that are not numbers"), len(prompt)
        odds = [value / before for value, before in zip(raw, prior, strict=True)]
        stance = likeliest([value / sum(odds) for value in odds])
        if sorted((stance.probabilities or {}).values())[-2] == stance.confidence:
            return Stance(None, error=f"{self.name} finds two answers equally likely"), len(prompt)
        return stance, len(prompt)

    # -- the prompt

    @functools.cached_property
    def max_tokens(self) -> int:
        """How many tokens are read at a time."""
        limit = getattr(self.network.config.get_text_config(), "max_position_embeddings", None)
        return min(self._max_tokens, limit or self._max_tokens)

    @functools.cached_property
    def _pieces(self) -> tuple[list[list[int]], bool]:
        """The prompt's tokens around document and claim, and whether the document stands first."""
        text = self._prompt.replace("{document}", _PLACES[0]).replace("{claim}", _PLACES[1])
        start: list[int] = []
        if self.tokenizer.chat_template:
            message = [{"role": "user", "content": text}]
            text = self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            if any(text.count(place) != 1 for place in _PLACES):
                raise InvalidData(f"the chat template of {self.path} changes the prompt, so this model can't be used")
        else:
            text += "\nAnswer:"
            # The tokenizer knows whether the model needs a token in front.
            alone, plain = (self.tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
            if alone[: len(alone) - len(plain)] == [self.tokenizer.bos_token_id]:
                start = [self.tokenizer.bos_token_id]
        first = text.index(_PLACES[0]) < text.index(_PLACES[1])
        left, rest = text.split(_PLACES[0 if first else 1])
        middle, right = rest.split(_PLACES[1 if first else 0])
        pieces = [
            self.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"] for part in (left, middle, right)
        ]
        return [start + pieces[0], pieces[1], pieces[2]], first

    @functools.cached_property
    def _answers(self) -> list[list[int]]:
        """The tokens of the answers, in the order of STANCES."""
        space = "" if self.tokenizer.chat_template else " "
        return [
            self.tokenizer(space + ANSWERS[label], add_special_tokens=False, verbose=False)["input_ids"]
            for label in STANCES
        ]

    @property
    def _fixed_tokens(self) -> int:
        return sum(map(len, self._pieces[0])) + max(map(len, self._answers))

    def _content(self, text: str) -> list[int]:
        """The tokens of a text from outside: special tokens and marks such as `<think>` in it are words."""
        words, marks = self._words
        text = broken_up(clean(text).replace("\ue000", " "), marks)
        ids: list[int] = words(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    @functools.cached_property
    def _words(self) -> tuple[Any, list[str]]:
        """The tokenizer for texts from outside, and what was added to its vocabulary without being special."""
        words = copy.deepcopy(self.tokenizer)
        words_only(words)
        special = set(special_tokens(words))
        return words, [token for token in special_tokens(words, added=True) if token not in special]

    def _assemble(self, document: list[int], claim: list[int]) -> list[int]:
        (left, middle, right), first = self._pieces
        one, two = (document, claim) if first else (claim, document)
        return [*left, *one, *middle, *two, *right]

    # -- the model

    @functools.cached_property
    def prior(self) -> list[float] | None:
        """The mean probabilities of the answers, in the order of STANCES, if there is nothing to read."""
        found = [self._likelihoods(self._assemble(ids, ids)) for ids in map(self._content, CONTENT_FREE)]
        rows = [row for row in found if row is not None]
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)] if len(rows) == len(found) else None

    def _likelihoods(self, prompt: list[int]) -> list[float] | None:
        """The answers' probabilities after a prompt, by the mean log-likelihood of their tokens; None: no numbers."""
        import torch

        with torch.inference_mode():
            read = self.network(
                input_ids=torch.tensor([prompt], device=self.network.device), use_cache=True, **self._last_only
            )
            first = read.logits[0, -1].float().log_softmax(-1)
            means = []
            for answer in self._answers:
                values = [first[answer[0]]]
                if len(answer) > 1:
                    # The prompt was read once; each answer goes on from a copy of what is remembered of it.
                    after = self.network(
                        input_ids=torch.tensor([answer[:-1]], device=self.network.device),
                        past_key_values=copy.deepcopy(read.past_key_values),
                        use_cache=True,
                    )
                    rest = after.logits[0].float().log_softmax(-1)
                    values += [rest[place, token] for place, token in enumerate(answer[1:])]
                means.append(torch.stack(values).mean())
            probabilities: list[float] = torch.stack(means).softmax(-1).tolist()
        # One that is zero can't be divided by.
        return probabilities if all(math.isfinite(value) and value > 0 for value in probabilities) else None

    @functools.cached_property
    def _last_only(self) -> dict[str, int]:
        """Logits at the last place only, where the architecture can."""
        return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(self.network.forward).parameters else {}

    def load(self, path: Path, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model, in bfloat16 on a GPU, and its tokenizer."""
        dtype = "float32" if device == "cpu" else "bfloat16"
        model, tokenizer = load_transformer(path, "AutoModelForCausalLM", "causal language model", dtype)
        return model.to(device), tokenizer
