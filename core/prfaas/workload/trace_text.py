"""Texts of traces: two public formats and our own, read into a `Trace` and written from one.

mooncake   a JSON object a line: timestamp (ms), input_length, output_length, hash_ids (512 tokens)
azure      CSV with the heading TIMESTAMP,ContextTokens,GeneratedTokens
recorded   our own: a heading line {"prfaas_trace": 1, "block_tokens": n}, then an object a line:
           arrival_s, prompt_tokens, output_tokens, and perhaps blocks and tenant
"""

import json
import math
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import numpy as np

from prfaas.errors import ConfigError
from prfaas.workload.trace import Trace

MAX_REQUESTS = 10_000_000
MAX_TOKENS = 1 << 30
MAX_ARRIVAL_S = 1e10
"""Also dates must fit: this is some 300 years."""

_MOONCAKE_BLOCK_TOKENS = 512
_AZURE_HEADING = "TIMESTAMP,ContextTokens,GeneratedTokens"
_VERSION = 1


class TraceFormat(StrEnum):
    """A format of a trace's text."""

    MOONCAKE = "mooncake"
    AZURE = "azure"
    RECORDED = "recorded"


def parse_trace(text: str, where: str, format: TraceFormat | None = None) -> Trace:  # noqa: A002
    """Read a trace; `where` names it in errors, without `format` its first line tells the format.

    Arrivals are counted from the first one.

    Raises:
        ConfigError: naming where, line and field; also for arrivals that are not in order.
    """
    lines = _lines(text)
    number, first = next(lines, (1, ""))
    if not first:
        raise ConfigError(f"{where}: empty; a trace needs one request at least")
    format = format or _sniff(first, f"{where}:{number}")  # noqa: A001
    if format is TraceFormat.AZURE:
        return _read_azure(first, lines, _Columns(where, 0))
    if format is TraceFormat.RECORDED:
        columns = _Columns(where, _block_tokens(first, f"{where}:{number}"))
        return _read_objects(lines, columns, ("arrival_s", "prompt_tokens", "output_tokens"))
    columns = _Columns(where, _MOONCAKE_BLOCK_TOKENS)
    columns.names, columns.seconds_per_unit = ("blocks", "hash_ids"), 1e-3
    return _read_objects(_lines(text), columns, ("timestamp", "input_length", "output_length"))


def format_trace(trace: Trace) -> Iterator[str]:
    """Yield the lines of a trace in our own format, each with its line end."""
    heading = {"prfaas_trace": _VERSION, "block_tokens": trace.block_tokens}
    yield json.dumps(heading) + "\n"
    bounds, tenants = trace.block_offsets.tolist(), trace.tenant.tolist()
    columns = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for index, (arrival_s, prompt_tokens, output_tokens) in enumerate(rows):
        row: dict[str, Any] = {
            "arrival_s": arrival_s,
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
        }
        if blocks := trace.block_hashes[bounds[index] : bounds[index + 1]].tolist():
            row["blocks"] = blocks
        if tenant := trace.tenant_names[tenants[index]]:
            row["tenant"] = tenant
        yield json.dumps(row) + "\n"


class _Columns:
    """The columns of a trace under construction; every value is checked as it comes."""

    def __init__(self, where: str, block_tokens: int) -> None:
        self.where = where
        self.block_tokens = block_tokens
        self.names: tuple[str, ...] = ("blocks",)
        self.seconds_per_unit = 1.0
        self._arrivals = array("d")
        self._prompts = array("q")
        self._outputs = array("q")
        self._hashes = array("q")
        self._offsets = array("q", [0])
        self._tenants = array("i")
        self._tenant_numbers: dict[str, int] = {}

    def add_arrival(self, number: int, field: str, arrival: Any, *, shown: Any = None) -> None:
        """Add the arrival of the request in line `number`, in units of the format.

        `shown` is what errors show of it, where that is not the value itself.
        """
        shown = arrival if shown is None else shown
        if isinstance(arrival, bool) or not isinstance(arrival, int | float):
            raise self.error(number, field, shown, "must be a number")
        # Compared before it is multiplied: a whole number may be too large for a float.
        possible = abs(arrival) <= MAX_ARRIVAL_S / self.seconds_per_unit
        seconds = arrival * self.seconds_per_unit if possible else math.nan
        if self._arrivals and seconds < self._arrivals[-1]:
            raise self.error(number, field, shown, "is before the request above; sort the trace")
        if not 0 <= seconds <= MAX_ARRIVAL_S:
            raise self.error(number, field, shown, f"must be from 0 to {MAX_ARRIVAL_S:g} seconds")
        if len(self._arrivals) >= MAX_REQUESTS:
            raise ConfigError(f"{self.where}:{number}: more than {MAX_REQUESTS} requests")
        self._arrivals.append(seconds)

    def add_lengths(self, number: int, fields: tuple[str, str], prompt: Any, output: Any) -> None:
        """Add prompt and output tokens; a prompt has one token at least."""
        self._prompts.append(self._tokens(number, fields[0], prompt, 1))
        self._outputs.append(self._tokens(number, fields[1], output, 0))

    def add_blocks(self, number: int, field: str, blocks: Any) -> None:
        """Add the block hashes of the prompt; None is none."""
        if blocks is not None:
            self._check_blocks(number, field, blocks)
            try:
                self._hashes.extend(array("q", blocks))
            except (TypeError, OverflowError):
                problem = "must be whole numbers of 64 bits, with sign"
                raise self.error(number, field, blocks, problem) from None
        self._offsets.append(len(self._hashes))

    def add_tenant(self, number: int, tenant: Any) -> None:
        """Add the tenant's name; empty is none."""
        if not isinstance(tenant, str):
            raise self.error(number, "tenant", tenant, "must be a string")
        self._tenants.append(self._tenant_numbers.setdefault(tenant, len(self._tenant_numbers)))

    def trace(self) -> Trace:
        """Return the trace.

        Raises:
            ConfigError: it has no request.
        """
        if not self._arrivals:
            raise ConfigError(f"{self.where}: empty; a trace needs one request at least")
        arrivals = np.array(self._arrivals)
        blocks = len(self._hashes) > 0
        return Trace(
            arrival_s=arrivals - arrivals[0],
            prompt_tokens=np.array(self._prompts, dtype=np.int64),
            output_tokens=np.array(self._outputs, dtype=np.int64),
            block_hashes=np.array(self._hashes, dtype=np.int64),
            block_offsets=np.array(self._offsets, dtype=np.int64),
            block_tokens=self.block_tokens if blocks else 0,
            tenant=np.array(self._tenants, dtype=np.int32),
            tenant_names=tuple(self._tenant_numbers),
        )

    def error(self, number: int, field: str, value: Any, problem: str) -> ConfigError:
        """Return the error of a field; a long value is cut."""
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        return ConfigError(f"{self.where}:{number}: {field}: {shown}: {problem}")

    def _tokens(self, number: int, field: str, tokens: Any, least: int) -> int:
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            raise self.error(number, field, tokens, "must be a whole number")
        if not least <= tokens <= MAX_TOKENS:
            raise self.error(number, field, tokens, f"must be from {least} to {MAX_TOKENS}")
        return tokens

    def _check_blocks(self, number: int, field: str, blocks: Any) -> None:
        if not isinstance(blocks, list):
            raise self.error(number, field, blocks, "must be a list")
        full, rest = divmod(self._prompts[-1], self.block_tokens) if self.block_tokens else (0, 0)
        if blocks and not full <= len(blocks) <= full + (rest > 0):
            problem = (
                f"{len(blocks)} blocks of {self.block_tokens} tokens"
                f" do not fit a prompt of {self._prompts[-1]}"
            )
            raise self.error(number, field, blocks, problem)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines that hold something, without copying the text as a whole."""
    begin, number = 0, 0
    while begin < len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        number += 1
        line = text[begin:end].strip("\ufeff \t\r")
        if line:
            yield number, line
        begin = end + 1


def _sniff(first: str, place: str) -> TraceFormat:
    if first.startswith("TIMESTAMP"):
        return TraceFormat.AZURE
    if first.startswith("{"):
        fields = _object(first, place)
        if "prfaas_trace" in fields:
            return TraceFormat.RECORDED
        if "timestamp" in fields:
            return TraceFormat.MOONCAKE
    raise ConfigError(f"{place}: no known format of a trace; known: {', '.join(TraceFormat)}")


def _read_objects(
    lines: Iterator[tuple[int, str]], columns: _Columns, fields: tuple[str, str, str]
) -> Trace:
    arrival, prompt, output = fields
    blocks = columns.names[-1]
    for number, line in lines:
        row = _object(line, f"{columns.where}:{number}")
        if missing := [field for field in fields if field not in row]:
            raise ConfigError(f"{columns.where}:{number}: {missing[0]}: missing")
        columns.add_arrival(number, arrival, row[arrival])
        columns.add_lengths(number, (prompt, output), row[prompt], row[output])
        columns.add_blocks(number, blocks, row.get(blocks))
        columns.add_tenant(number, row.get("tenant", ""))
    return columns.trace()


def _read_azure(heading: str, lines: Iterator[tuple[int, str]], columns: _Columns) -> Trace:
    arrival, prompt, output = fields = _AZURE_HEADING.split(",")
    if heading.split(",") != fields:
        raise ConfigError(f"{columns.where}:1: the heading must be {_AZURE_HEADING}")
    began: datetime | None = None
    for number, line in lines:
        cells = line.split(",")
        if len(cells) != len(fields):
            raise ConfigError(f"{columns.where}:{number}: {len(cells)} cells, not {len(fields)}")
        time = _time(cells[0])
        if time is None:
            raise columns.error(number, arrival, cells[0], "must be as 2023-11-16 18:15:46.68")
        began = began or time
        columns.add_arrival(number, arrival, (time - began).total_seconds(), shown=cells[0])
        columns.add_lengths(number, (prompt, output), _whole(cells[1]), _whole(cells[2]))
        columns.add_blocks(number, "", None)
        columns.add_tenant(number, "")
    return columns.trace()


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _whole(text: str) -> Any:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def _block_tokens(heading: str, place: str) -> int:
    fields = _object(heading, place)
    if fields.get("prfaas_trace") != _VERSION:
        raise ConfigError(f"{place}: prfaas_trace: must be {_VERSION}, the only version known")
    tokens = fields.get("block_tokens", 0)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= MAX_TOKENS:
        raise ConfigError(f"{place}: block_tokens: must be a whole number up to {MAX_TOKENS}")
    return tokens


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigError(f"{place}: not JSON") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{place}: not a JSON object")
    return fields
