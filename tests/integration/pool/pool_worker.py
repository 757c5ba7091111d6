"""A process that stores and loads for ever; killed by the test that started it.

Arguments: socket, seed. Prints one line once it has stored something. A wrong item ends it with
status 3.
"""

import random
import sys

from pool_service import NAMESPACE, load, page_hashes, store

from prfaas_pool.client import PoolClient

SIZES = {"kv": 900, "mamba": 9000, "swa": 300}


def main() -> int:
    client, rng = PoolClient(sys.argv[1]), random.Random(int(sys.argv[2]))
    said = False
    while True:
        stem = [rng.randrange(3)] * (4 * rng.randint(1, 6))
        chain = NAMESPACE.keys(page_hashes(stem + [rng.randrange(3)] * (4 * rng.randint(0, 6))))
        pages = len(chain) // 16
        try:
            store(client, chain, pages - 1, group="mamba", size=SIZES["mamba"])
            store(client, chain, max(0, pages - 3), group="swa", size=SIZES["swa"])
            stored = store(client, chain, 0, group="kv", size=SIZES["kv"])
            load(client, chain, 0, group="kv", size=SIZES["kv"])
            load(client, chain, pages - 1, group="mamba", size=SIZES["mamba"])
            load(client, chain, max(0, pages - 3), group="swa", size=SIZES["swa"])
        except AssertionError:
            return 3
        if stored and not said:
            print("stored", flush=True)
            said = True


if __name__ == "__main__":
    sys.exit(main())
