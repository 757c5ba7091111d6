"""What SGLang calls the pages of a prompt in its storage, computed without SGLang.

Source: sglang 0.5.23 srt/mem_cache/utils.py (`storage_namespace_seed`, `get_storage_hash_str`),
cpp_utils/hash_binding.cpp (`hash_page`).
"""

import hashlib

_TOKEN_BYTES = 4


def page_hashes(
    raw: bytes, page_tokens: int, *, cache_salt: str = "", extra_key: str = ""
) -> list[str]:
    """Return one hash (hex) per full page; each covers its page and all before it.

    `raw` is the tokens, 4 bytes each, little-endian. Requests with another salt or key have other
    hashes.

    >>> two = page_hashes(bytes(8 * 4), 4)
    >>> len(two), two[:1] == page_hashes(bytes(4 * 4), 4), two[0] == two[1]
    (2, True, False)
    """
    size = page_tokens * _TOKEN_BYTES
    before = _seed(cache_salt, extra_key)
    found = []
    for start in range(0, len(raw) - size + 1, size):
        before = hashlib.sha256(before + raw[start : start + size]).digest()
        found.append(before.hex())
    return found


def _seed(cache_salt: str, extra_key: str) -> bytes:
    """Return what comes before the first page; an empty salt or key counts as none."""
    if not cache_salt and not extra_key:
        return b""
    digest = hashlib.sha256(b"sglang-cache-namespace-v1")
    for part in (extra_key, cache_salt):
        if not part:
            digest.update(b"\x00")
            continue
        encoded = part.encode()
        digest.update(b"\x01" + len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()
