"""The limits on calls and cost, and what has been spent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..core.errors import UsageError
from ..core.settings import Settings
from .types import BudgetSpent

_FIRST_GUESS = 300
"""Completion tokens of an answer, before there was one."""


@dataclass(slots=True)
class Price:
    """The price of a million tokens, in the user's currency."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class Budget:
    """Calls and money. Every request that a server began to answer counts, also one that timed out.

    Before a request its cost is estimated. It is not made if the estimate exceeds what is left. Requests in progress
    can cost more than estimated, so the limit can be exceeded by that difference. Several language models can share a
    budget. It is used in the event loop only.
    """

    def __init__(self, max_calls: int | None, max_cost: float | None, price: Price | None) -> None:
        self._max_calls, self._max_cost, self._price = max_calls, max_cost, price
        self._pending: list[float] = []
        self._changed = asyncio.Condition()
        self._answers = self._completion_tokens = self._prompt_tokens = self._estimated = 0
        self.calls = 0
        self.cost: float | None = 0.0 if price is not None else None
        """Cost so far; None if prices are unknown."""

    async def reserve(self, prompt_tokens: int) -> float:
        """Reserve the cost of a request of about this many tokens, which is returned.

        If the answer depends on requests in progress, it waits for them. Raises BudgetSpent.
        """
        async with self._changed:
            while (problem := self._problem(estimate := self._estimate(prompt_tokens))) is not None:
                if not self._pending:
                    raise BudgetSpent(problem)
                await self._changed.wait()
            self._pending.append(estimate)
        return estimate

    async def settle(
        self, reserved: float, prompt_tokens: int, tokens: tuple[int, int] | None, *, counts: bool = True
    ) -> None:
        """The request is over. `tokens`: (prompt, completion) of its answer; without one the estimate stands.

        A request that the server refused does not count.
        """
        async with self._changed:
            self._pending.remove(reserved)
            self.calls += counts
            if counts and self._price is not None and self.cost is not None:
                self.cost += self._price.of(*tokens) if tokens is not None else reserved
            if tokens is not None:
                self._answers += 1
                self._estimated += prompt_tokens
                self._prompt_tokens += tokens[0]
                self._completion_tokens += tokens[1]
            self._changed.notify_all()

    def _estimate(self, prompt_tokens: int) -> float:
        """The cost of a request, estimated from the server's counts for earlier ones."""
        if self._price is None:
            return 0.0
        if not self._answers:
            return self._price.of(prompt_tokens, _FIRST_GUESS)
        scale = self._prompt_tokens / max(1, self._estimated)
        return self._price.of(round(prompt_tokens * scale), round(self._completion_tokens / self._answers))

    def _problem(self, estimate: float) -> str | None:
        if self._max_calls is not None and self.calls + len(self._pending) >= self._max_calls:
            said = f"the limit of {self._max_calls} calls is reached after {self.calls} calls (CCHECK_LLM_MAX_CALLS)"
        elif self._max_cost is not None and (self.cost or 0.0) + sum(self._pending) + estimate > self._max_cost:
            said = f"{self.cost:.4f} is spent, this call would cost about {estimate:.4f}, and the limit is "
            said += f"{self._max_cost:g} (CCHECK_LLM_MAX_COST)"
        else:
            return None
        return f"not asked: {said}. Answers so far are kept, so a second run continues from here"


def price_of(settings: Settings) -> Price | None:
    """The prices that the settings name; None unless both are known."""
    prompt, completion = settings.llm_prompt_price, settings.llm_completion_price
    return Price(prompt, completion) if prompt is not None and completion is not None else None


def open_budget(settings: Settings) -> Budget:
    """The budget that the settings describe. Raises UsageError for a limit of cost without prices."""
    price = price_of(settings)
    if settings.llm_max_cost is not None and price is None:
        raise UsageError(
            "a cost limit needs the prices of a million tokens: set CCHECK_LLM_PROMPT_PRICE and "
            "CCHECK_LLM_COMPLETION_PRICE"
        )
    return Budget(settings.llm_max_calls, settings.llm_max_cost, price)
