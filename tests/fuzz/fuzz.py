"""Coverage-guided fuzzing of what peers can make us do: `make fuzz SECONDS=60`.

One input is for the decoder, a hostile receiver, a hostile sender or the codec, by its first byte.
It starts from the golden and malformed vectors and from random steps, and keeps what it finds in
build/fuzz.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import atheris

HERE = Path(__file__).parent
VECTORS = HERE.parent / "vectors"
CORPUS = HERE.parents[1] / "build" / "fuzz"
MAX_BYTES = 1024

sys.path.insert(0, str(HERE))

with atheris.instrument_imports(include=["prfaas.wire", "prfaas.transfer", "prfaas.errors"]):
    import hostile

TARGETS = (
    hostile.run_decoder,
    hostile.run_sender,
    hostile.run_receiver,
    hostile.run_payload,
)


def run_one(data: bytes) -> None:
    """Run one input."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def seeds() -> Iterator[bytes]:
    """Yield inputs that get far at once."""
    for path in sorted(VECTORS.glob("wire-*.json")):
        for vector in json.loads(path.read_text()):
            frame = bytes.fromhex(vector["hex"])
            cuts = (frame[at : at + 200] for at in range(0, len(frame), 200))
            yield b"\0" + b"".join(bytes([len(cut) - 1]) + cut for cut in cuts)
    payloads = json.loads((VECTORS / "encoded-payloads.json").read_text())
    for vector in payloads["golden"] + payloads["malformed"]:
        plain_bytes = vector.get("plain_bytes") or len(vector["plain"]) // 2
        high, low = divmod(plain_bytes - 1, 256)
        yield bytes([3, vector["encoding"] // 2, low, high]) + bytes.fromhex(vector["payload"])
    rng = random.Random(0)
    for number in range(200):
        yield bytes([1 + number % 2]) + rng.randbytes(rng.randrange(1, MAX_BYTES))


def main(seconds: int) -> None:
    """Fuzz for so long; end with a stack trace at the first finding."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()):
        (CORPUS / f"seed-{number}").write_bytes(data[:MAX_BYTES])
    options = (f"-max_total_time={seconds}", "-len_control=0", f"-max_len={MAX_BYTES}")
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={CORPUS}/", str(CORPUS)], run_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]))
