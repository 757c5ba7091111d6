"""What a measurement will do: its options checked, and checked against the server."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError
from prfaas.profile.fit import Subject
from prfaas.profile.geometry import KvGeometry
from prfaas.profile.samples import Machine
from prfaas_cli.engine_client import EngineFacts, checked_url, is_local
from prfaas_cli.engine_sweep import SweepPlan
from prfaas_cli.machine_facts import this_machine
from prfaas_cli.profile_files import check_writable
from prfaas_cli.profile_kv import parse_lengths, read_config, read_geometry

_LENGTHS = tuple(1 << power for power in range(7, 18))
_WELL_BEYOND = 1.25
_BATCHES = (1, 2, 4, 8, 16, 32)
_CONTEXT_TOKENS = 1024
_MOST_BATCH, _MOST_REPEAT, _MOST_OUTPUT = 4096, 100, 4096
_LEAST_OUTPUT = 4


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a person asks of `profile run`; None is left to the program."""

    url: str
    lengths: str | None
    batches: str | None
    repeat: int
    output_tokens: int
    context: str | None
    timeout_s: float
    config: Path | None
    hardware: str | None
    output: Path | None

    def check(self) -> None:
        """Check what can be checked without the server.

        Raises:
            ConfigError: naming the option and what is allowed.
        """
        checked_url(self.url)
        self.asked_lengths()
        self.asked_batches()
        self.asked_context()
        _between("--repeat", self.repeat, 1, _MOST_REPEAT)
        _between("--output-tokens", self.output_tokens, _LEAST_OUTPUT, _MOST_OUTPUT)
        if not 0 < self.timeout_s < math.inf:
            raise ConfigError(f"--timeout {self.timeout_s:g}: must be above 0 seconds and finite")
        if self.hardware is not None and not (self.hardware and self.hardware.isprintable()):
            raise ConfigError(f"--hardware {self.hardware!r:.60}: must be one line of text")
        if self.output is not None:
            check_writable(self.output)

    def asked_lengths(self) -> tuple[int, ...] | None:
        """Return the prompt lengths asked for, shortest first."""
        return None if self.lengths is None else tuple(sorted({*parse_lengths(self.lengths)}))

    def asked_batches(self) -> tuple[int, ...] | None:
        """Return the decode batches asked for, smallest first; none are an empty text."""
        if self.batches is None:
            return None
        words = [word.strip() for word in self.batches.split(",") if word.strip()]
        for word in words:
            if not (word.isascii() and word.isdigit() and 1 <= int(word[:9]) <= _MOST_BATCH):
                raise ConfigError(
                    f"--batches {word[:40]!r}: must be 1 to {_MOST_BATCH}, as in 1,2,4"
                )
        return tuple(sorted({int(word) for word in words}))

    def asked_context(self) -> int | None:
        """Return the prompt length of decode runs asked for."""
        if self.context is None:
            return None
        try:
            return max(parse_lengths(self.context))
        except ConfigError as error:
            raise ConfigError(str(error).replace("--lengths", "--context", 1)) from None


@dataclass(frozen=True, slots=True)
class Target:
    """What is measured, with what is known of it beforehand."""

    facts: EngineFacts
    plan: SweepPlan
    geometry: KvGeometry
    config: Path
    machine: Machine
    subject: Subject
    file: Path


def plan_run(options: RunOptions, facts: EngineFacts) -> Target:
    """Return what to measure on a server, and what to save it as.

    Raises:
        ConfigError: the server cannot do what is asked, or the model's config is not to be had.
    """
    config = _config_path(options, facts)
    dtypes = {"kv": facts.kv_dtype or None, "ssm": facts.ssm_dtype or None, "conv": None}
    machine = this_machine() if is_local(options.url) else Machine()
    return Target(
        facts=facts,
        plan=_plan(options, facts, _vocabulary(config)),
        geometry=read_geometry(config, dtypes),
        config=config,
        machine=machine,
        subject=Subject(facts.model, facts.model, _hardware(options, facts, machine), facts.gpus),
        file=_file(options, facts),
    )


def _plan(options: RunOptions, facts: EngineFacts, vocabulary: tuple[int, int]) -> SweepPlan:
    longest = min(facts.longest_prompt or math.inf, facts.pool_tokens or math.inf)
    context = options.asked_context() or int(min(_CONTEXT_TOKENS, longest // 4))
    return SweepPlan(
        lengths=_lengths(options, facts, longest),
        batches=_batches(options, facts, context + options.output_tokens, longest),
        repeat=options.repeat,
        output_tokens=options.output_tokens,
        context_tokens=context,
        vocabulary=vocabulary,
    )


def _lengths(options: RunOptions, facts: EngineFacts, longest: float) -> tuple[int, ...]:
    """One token more is needed for the answer."""
    asked = options.asked_lengths()
    for tokens in asked or ():
        if tokens + 1 > longest:
            raise ConfigError(
                f"--lengths {tokens}: {facts.model} takes prompts of {longest - 1:.0f} tokens at"
                " most; leave it out, or start the server with a larger --context-length"
            )
    fitting = asked or _usual_lengths(longest)
    if not fitting:
        raise ConfigError(f"{facts.model} takes prompts of {longest:.0f} tokens only; --lengths?")
    return fitting


def _usual_lengths(longest: float) -> tuple[int, ...]:
    """Return powers of two, and the longest prompt when it is well beyond the last of them."""
    fitting = tuple(tokens for tokens in _LENGTHS if tokens + 1 <= longest)
    if fitting and fitting[-1] < _LENGTHS[-1] and longest - 1 > _WELL_BEYOND * fitting[-1]:
        return (*fitting, int(longest) - 1)
    return fitting


def _batches(
    options: RunOptions, facts: EngineFacts, held_tokens: int, longest: float
) -> tuple[int, ...]:
    if held_tokens > longest:
        raise ConfigError(
            f"--context and --output-tokens: {held_tokens} tokens, but {facts.model} takes"
            f" {longest:.0f} at most"
        )
    by_memory = facts.pool_tokens // held_tokens if facts.pool_tokens else math.inf
    most = min(facts.largest_batch or math.inf, by_memory)
    asked = options.asked_batches()
    for batch in asked or ():
        if batch > most:
            raise ConfigError(
                f"--batches {batch}: the server runs {most:.0f} requests of {held_tokens} tokens at"
                " once; see its --max-running-requests and --max-total-tokens, or a shorter"
                " --context"
            )
    return tuple(batch for batch in _BATCHES if batch <= most) if asked is None else asked


def _config_path(options: RunOptions, facts: EngineFacts) -> Path:
    if options.config is not None:
        return options.config / "config.json" if options.config.is_dir() else options.config
    path = Path(facts.model_path) / "config.json"
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):
        pass
    raise ConfigError(
        f"--config: the server's model {facts.model_path!r:.100} is not on this machine; give its"
        " config.json, which says what its KV cache weighs"
    )


def _vocabulary(config: Path) -> tuple[int, int]:
    """Return token ids that are ordinary: special ones are at either end of a vocabulary.

    An id outside it kills some servers.
    """
    raw = read_config(config)
    inner = raw.get("text_config")
    size: Any = (raw | inner if isinstance(inner, dict) else raw).get("vocab_size")
    if isinstance(size, bool) or not isinstance(size, int) or not 16 <= size < 1 << 31:
        raise ConfigError(f"--config {config}: vocab_size: {size!r:.40}: must be a whole number")
    return min(size // 4, 1000), size // 2


def _hardware(options: RunOptions, facts: EngineFacts, machine: Machine) -> str:
    found = machine.cpu if facts.device == "cpu" else machine.gpu
    return options.hardware or found or f"{facts.gpus}x {facts.device or 'unknown'}"


def _file(options: RunOptions, facts: EngineFacts) -> Path:
    if options.output is not None:
        return options.output
    name = "".join(char if char.isalnum() or char in "-._" else "-" for char in facts.model)
    path = Path(f"{name.lstrip('.') or 'engine'}.profile.json")
    if path.exists():
        raise ConfigError(f"--output: {path} exists already; name a file")
    check_writable(path)
    return path


def _between(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{option} {value}: allowed is {least} to {most}")
