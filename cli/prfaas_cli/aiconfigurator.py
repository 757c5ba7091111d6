"""NVIDIA's AIConfigurator, asked what one SGLang instance would take. Never reaches for a network.

Source: aiconfigurator-core 0.12.0, `aiconfigurator_core.sdk` (compile_engine, EngineHandle,
estimate_kv_cache); times there are milliseconds.
"""

import logging
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from prfaas.errors import ConfigError, PreflightError

PACKAGE = "aiconfigurator-core"
_BACKEND = "sglang"
#: SGLang's own default is about this share of GPU memory.
_MEMORY_SHARE = 0.85
_CHUNK_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Instance:
    """What to estimate. `model` is a Hugging Face name that the package knows, or a directory.

    Experts are split over `ep` ranks, each expert over `tp` / `ep`.
    """

    model: str
    system: str
    tp: int
    ep: int

    @property
    def options(self) -> str:
        """Return it as a person asked for it."""
        return f"--model {self.model} --system {self.system} --tp {self.tp} --ep {self.ep}"

    @property
    def split(self) -> dict[str, int]:
        """Return it in the package's words."""
        return {"tp_size": self.tp, "moe_tp_size": self.tp // self.ep, "moe_ep_size": self.ep}


class Estimator:
    """One instance, ready to be asked.

    Raises:
        PreflightError: the package is not installed.
        ConfigError: it does not know the model or system, or cannot split the model so.
    """

    def __init__(self, instance: Instance) -> None:
        logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)
        self._instance = instance
        self._sdk = _package("aiconfigurator_core.sdk")
        root = Path(str(_package("aiconfigurator_core").__file__)).parent
        _check_system(instance.system, root / "systems")
        self.config = self._find_config(root / "model_configs")
        self.sglang_version = self._ask("this system", self._data_version)
        self._engine = self._ask("this instance", self._compile)

    def prefill_s(self, tokens: int) -> float:
        """Return T_prefill of a lone prompt."""
        what = f"a prefill of {tokens} tokens"
        return self._seconds(what, lambda: self._engine.predict_prefill_latency(1, tokens))

    def step_s(self, batch: int, context_tokens: int) -> float:
        """Return the time of one decode step."""
        what = f"a decode step of {batch}"
        return self._seconds(
            what, lambda: self._engine.predict_decode_latency(batch, context_tokens)
        )

    def cache_bytes(self) -> int:
        """Return the memory that all ranks together have for caches."""
        answer = self._ask("the memory for caches", self._memory)
        return int(answer["total_kv_size_bytes"]) * self._instance.tp

    def _find_config(self, known: Path) -> Path:
        """Return the model's config.json. The package would download one that it does not have."""
        model = self._instance.model
        if Path(model).is_dir():
            return Path(model) / "config.json"
        names = sorted(_package("aiconfigurator_core.sdk.common").DefaultHFModels)
        if model in names:
            return known / f"{model.replace('/', '--')}_config.json"
        near = ", ".join(get_close_matches(model, names, n=4, cutoff=0.4)) or ", ".join(names[:8])
        raise ConfigError(
            f"--model {model!r:.80}: {PACKAGE} does not know it; near: {near}"
            " (or give a directory with config.json)"
        )

    def _data_version(self) -> str:
        database = _package("aiconfigurator_core.sdk.perf_database")
        version = database.resolve_query_version(self._instance.system, _BACKEND, "current")
        if not version:
            raise ValueError("no data")
        return str(version)

    def _compile(self) -> Any:
        instance, version = self._instance, self.sglang_version
        spec = self._sdk.compile_engine(
            instance.model, instance.system, _BACKEND, version, **instance.split
        )
        return self._sdk.EngineHandle(spec)

    def _memory(self) -> Any:
        return self._sdk.estimate_kv_cache(
            self._instance.model,
            self._instance.system,
            _BACKEND,
            self.sglang_version,
            max_num_tokens=_CHUNK_TOKENS,
            max_batch_size=1,
            memory_fraction_kind="of_total",
            memory_fraction_value=_MEMORY_SHARE,
            **self._instance.split,
        )

    def _seconds(self, what: str, ask: Any) -> float:
        value = float(self._ask(what, ask)) / 1000
        if not 0 < value < float("inf"):
            raise ConfigError(
                f"--model {self._instance.model}: {PACKAGE} says {value} s for {what}"
            )
        return value

    def _ask(self, what: str, ask: Any) -> Any:
        """Ask the package. It fails in many ways (assertions among them), with words for people."""
        try:
            return ask()
        except Exception as error:  # the outermost frame of foreign code
            said = " ".join(str(error).split())[:300] or type(error).__name__
            raise ConfigError(
                f"{self._instance.options}: {PACKAGE} has no estimate of {what}, other options may"
                f" do: {said}"
            ) from None


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise PreflightError(
            f"profile estimate: {PACKAGE} is not installed ({error}); pip install"
            " 'prfaas[estimate]' brings it (about 500 MB)"
        ) from None


def _check_system(name: str, systems: Path) -> None:
    known = sorted(path.stem for path in systems.glob("*.yaml"))
    with_data = [stem for stem in known if (systems / "data" / stem).is_dir()]
    if name not in with_data:
        raise ConfigError(f"--system {name!r:.60}: allowed: {', '.join(with_data)}")
