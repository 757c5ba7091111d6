"""The parts of one running gateway, as its handlers reach them."""

from dataclasses import dataclass

from aiohttp import web

from prfaas.api_section import ApiSection
from prfaas.config import GatewaySection
from prfaas_coord import EtcdClient
from prfaas_gateway.access import Access
from prfaas_gateway.cors import Cors
from prfaas_gateway.dispatch import Dispatcher, Trace
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.metrics import Metrics
from prfaas_gateway.scheduler import Scheduler
from prfaas_gateway.tokenizer import TokenizerShelf


@dataclass(slots=True)
class Gateway:
    """What the handlers work with; one per application."""

    section: GatewaySection
    api: ApiSection
    access: Access
    cors: Cors
    deployment: str
    etcd: EtcdClient
    fleet: Fleet
    dispatcher: Dispatcher
    metrics: Metrics
    tokenizers: TokenizerShelf
    scheduler: Scheduler
    active_requests: int = 0


GATEWAY = web.AppKey("gateway", Gateway)
TRACE = web.RequestKey("trace", Trace)
