"""Look at a running deployment: one consistent answer for `deploy`, `status` and `chat`."""

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prfaas.errors import ConfigError, PrfaasError, StateError
from prfaas.records import NodeRecord, Role
from prfaas_agent.process import is_alive
from prfaas_cli.api_key import key_headers
from prfaas_cli.credentials import operator_context
from prfaas_cli.deploy_gateway import client_context
from prfaas_cli.options import DeployOptions, topology_of
from prfaas_cli.place import Place
from prfaas_cli.process_plan import (
    ETCD_PORT,
    GATEWAY_HOST,
    ProcessSpec,
    engines_of,
    node_name,
)
from prfaas_cli.processes import process_of, read_supervisor
from prfaas_cli.region_http import registered_nodes, request

if TYPE_CHECKING:
    from prfaas_netem import Topology

_GATEWAY_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Observed:
    """A deployment that exists, and the ways to look at its parts. Every look is short."""

    place: Place
    options: DeployOptions
    specs: tuple[ProcessSpec, ...]

    @classmethod
    def of(cls, place: Place) -> "Observed":
        """Return the deployment of a place.

        Raises:
            StateError: nothing is deployed there, it is on machines, or its file is damaged.
        """
        raw = place.require_emulated()
        try:
            specs = tuple(ProcessSpec.from_json(item) for item in raw["processes"])
            return cls(place, DeployOptions.from_json(raw["options"]), specs)
        except (KeyError, TypeError, ValueError):
            raise StateError(f"{place.deployment_file} is damaged; run prfaasctl destroy") from None

    @property
    def topology(self) -> "Topology":
        """The regions and the link as deployed."""
        return topology_of(self.place.name, self.options)

    @property
    def engine_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that run an engine."""
        return tuple(engine.name for engine in engines_of(self.options))

    @property
    def gateway_node(self) -> str:
        """Name of the gateway."""
        return node_name(self.options.home, Role.GATEWAY)

    def supervisor(self) -> dict[str, Any]:
        """Return the supervisor's file with `alive` for it and for every process."""
        found = read_supervisor(self.place)
        for entry in (found, *found["processes"].values()):
            process = process_of(entry)
            entry["alive"] = process is not None and is_alive(process)
        return found

    def etcd_answers(self) -> bool:
        """Return whether etcd serves."""
        tls = operator_context(self.place, self.options)
        return request(*self._etcd(), "/health", tls=tls) is not None

    def nodes(self) -> dict[str, NodeRecord] | None:
        """Return the registered nodes, None when etcd does not answer."""
        tls = operator_context(self.place, self.options)
        return registered_nodes(*self._etcd(), deployment=self.place.name, tls=tls)

    def leases(self) -> int | None:
        """Return how many leases etcd holds, None when it does not answer.

        Source: etcd 3.4 and 3.5, gRPC gateway `/v3/lease/leases`.
        """
        tls = operator_context(self.place, self.options)
        answer = request(*self._etcd(), "/v3/lease/leases", body={}, tls=tls)
        return None if answer is None else len(answer.get("leases", []))

    def link(self) -> dict[str, Any] | None:
        """Return what the link emulator tells, None when it does not answer."""
        from prfaas_netem import show

        try:
            return show(self.place.link_socket)
        except PrfaasError:
            return None

    def fork_server_ready(self) -> bool:
        """Return whether the fork server has said so."""
        try:
            return "ready" in self.place.log("forkserver").read_text().splitlines()
        except OSError:
            return False

    def gateway_ready(self) -> tuple[bool, str]:
        """Return whether the gateway takes requests, and why not."""
        try:
            status, text = self._ask_gateway("/ready")
        except (OSError, http.client.HTTPException) as error:
            return False, f"no answer on port {self.options.port}: {error}"
        return status == 200, "" if status == 200 else _reason(text)

    def links(self) -> dict[str, Any] | None:
        """Return the links from other regions as the gateway knows them, None without an answer."""
        links = (self.fleet() or {}).get("links")
        return links if isinstance(links, dict) else None

    def fleet(self) -> dict[str, Any] | None:
        """Return all that the gateway tells of its deployment, None without an answer."""
        try:
            status, text = self._ask_gateway("/admin/v1/fleet")
            fleet = json.loads(text)
        except (OSError, http.client.HTTPException, ValueError):
            return None
        return fleet if status == 200 and isinstance(fleet, dict) else None

    def gateway_metrics(self) -> str | None:
        """Return the gateway's metrics as Prometheus text, None without an answer."""
        try:
            status, text = self._ask_gateway("/metrics")
        except (OSError, http.client.HTTPException):
            return None
        return text if status == 200 else None

    def ask_admin(
        self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Return what the gateway says at a path below /admin/v1, or to a body that is put there.

        Raises:
            StateError: it does not answer, or says no.
        """
        try:
            longer = {} if timeout_s is None else {"timeout_s": timeout_s}
            status, text = self._ask_gateway(f"/admin/v1/{path}", body, **longer)
            answer = json.loads(text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StateError(f"the gateway on port {self.options.port}: {error}") from None
        if status != 200 or not isinstance(answer, dict):
            raise StateError(f"the gateway on port {self.options.port}: {_reason(text)}")
        return answer

    def _ask_gateway(
        self,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        timeout_s: float = _GATEWAY_TIMEOUT_S,
    ) -> tuple[int, str]:
        """Return status and body. Raises: OSError, HTTPException."""
        connection = self._gateway_connection(timeout_s)
        try:
            if body is None:
                connection.request("GET", path, headers=key_headers())
            else:
                headers = {"Content-Type": "application/json", **key_headers()}
                connection.request("PUT", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def _gateway_connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection to the gateway. Raises: OSError, its certificate is not there."""
        port = self.options.port
        try:
            tls = client_context(self.place, self.options)
        except ConfigError as error:
            raise OSError(str(error)) from None
        if tls is None:
            return http.client.HTTPConnection(GATEWAY_HOST, port, timeout=timeout_s)
        return http.client.HTTPSConnection(GATEWAY_HOST, port, timeout=timeout_s, context=tls)

    def _etcd(self) -> tuple[str, tuple[str, int]]:
        topology = self.topology
        region = self.options.home
        return topology.namespace(region), (topology.address(region), ETCD_PORT)


def _reason(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text.strip()[:200]
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        return str(error.get("message"))[:300]
    missing = value.get("missing") if isinstance(value, dict) else None
    if isinstance(missing, list) and missing:
        return "missing: " + ", ".join(str(item) for item in missing)
    return json.dumps(value)[:200]
