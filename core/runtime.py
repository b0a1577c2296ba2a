"""The surroundings of a run: settings, notices, progress, memory and loaded models, handed down whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from .cache import Memory
from .closing import Closing
from .models import FoundModel, find_model
from .settings import Settings
from .stages import LanguageModelStage

T = TypeVar("T")
Notify: TypeAlias = Callable[[str], None]
OnProgress: TypeAlias = Callable[[int, int | None], None]
"""Is told how many of how many are done; None: nobody knows how many there are."""
Bars: TypeAlias = Callable[[str, str | None], AbstractContextManager[OnProgress]]
"""Opens a bar for a name, and for the unit of what is counted: claims, documents."""


def silent(message: str) -> None:
    """Notices that nobody reads."""


def no_bar(name: str, unit: str | None = None) -> AbstractContextManager[OnProgress]:
    """Progress that nobody sees."""
    return nullcontext(lambda done, total: None)


class Connection(Closing):
    """A connection to a server. `notice` is a warning for the user about it."""

    @property
    def notice(self) -> str | None:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Runtime(Closing):
    """Whatever loads a model, waits for a server or takes long gets this, and passes it on.

    `settings` has the device, the cache folder, keys and permissions. `notify` is told, in a few words, before
    something takes long; it can be called from several threads. `progress` opens a bar. Without `download`, the hub is
    asked for nothing. `memory` keeps what stages compute. `language_model` says how language models are asked.

    Several checkers, and threads, may share one, so that comparing recipes loads nothing twice. Close it when all are
    done.
    """

    settings: Settings = field(default_factory=Settings)
    notify: Notify = silent
    progress: Bars = no_bar
    download: bool = True
    memory: Memory | None = None
    language_model: LanguageModelStage = field(default_factory=LanguageModelStage)
    _loaded: dict[tuple[str | None, ...], object] = field(default_factory=dict, repr=False)
    _loading: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def device(self) -> str | None:
        """The device that models run on, as torch names it; None: the fastest there is."""
        return self.settings.device

    def using(self, **settings: Any) -> Runtime:
        """The same with other settings, and with what is loaded."""
        return replace(self, settings=self.settings.model_copy(update=settings))

    def asking(self, language_model: LanguageModelStage) -> Runtime:
        """The same for a recipe that asks language models in this way."""
        return replace(self, language_model=language_model)

    def find(self, name: str) -> FoundModel:
        """See `find_model`."""
        return find_model(name, download=self.download)

    def loading(self, name: str) -> None:
        """Give notice that torch loads a model."""
        self.notify(f"loading {name} (torch takes some seconds to start)")

    def once(self, *key: str | None, make: Callable[[], T]) -> T:
        """What `make` returned when it was first called for this key and device. Other threads wait for it."""
        whole = (self.device, *key)
        if whole not in self._loaded:
            with self._loading:
                if whole not in self._loaded:
                    self._loaded[whole] = make()
        return self._loaded[whole]  # type: ignore[return-value]

    def notices(self) -> list[str]:
        """The notices about connections (`Connection.notice`) that the user should know."""
        return [one.notice for one in list(self._loaded.values()) if isinstance(one, Connection) and one.notice]

    def close(self) -> None:
        for one in self._loaded.values():
            if isinstance(one, Closing):
                one.close()
        self._loaded.clear()
