"""The hybrid prefix pool of a host: a shared-memory arena, the service that owns it, its clients.

Several engine processes store prefixes there and read those of others; it outlives them all.
"""

from prfaas_pool.client import PoolClient
from prfaas_pool.config import PoolConfig

__all__ = ["PoolClient", "PoolConfig"]
