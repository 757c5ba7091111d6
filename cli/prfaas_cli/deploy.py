"""`prfaasctl deploy`: emulated regions with real engines behind one API, in one command."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from prfaas.errors import ConfigError, PrfaasError, StateError
from prfaas_cli.endings import ENDINGS, signals_interrupt
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

DEFAULT_RATE, DEFAULT_RTT = "100gbit", "20ms"


def deploy(
    regions: Annotated[
        str | None,
        typer.Option(help="Names, as in a,b: the last decodes, the others prefill long prompts."),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(help="A file with regions, hosts and links (see docs/topology.md)."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="A tiny model's name or a model directory.")
    ] = "qwen3-next-tiny",
    port: Annotated[int, typer.Option(help="Port of the API on 127.0.0.1.")] = 8080,
    threshold: Annotated[
        int | None,
        typer.Option(
            help="Uncached prompt tokens above which a prefill is offloaded; 512, twins 19400."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="sglang, or twin: profiles in the place of compute (see docs/twin.md)."),
    ] = "sglang",
    instances: Annotated[
        str | None,
        typer.Option(help="Prefills of each region, then decodes of the last; 1,1,1."),
    ] = None,
    profiles: Annotated[
        str | None,
        typer.Option(help="Twins: a profile (name or file) for each region; the paper's."),
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Twins: what bytes of caches and the link's rate are divided by.")
    ] = 1000.0,
    dilation: Annotated[
        float, typer.Option(help="Twins: what all times are stretched by, the link's included.")
    ] = 1.0,
    link_rate: Annotated[
        str | None, typer.Option(help="Configured rate of the WAN link; 100gbit.")
    ] = None,
    link_rtt: Annotated[str | None, typer.Option(help="Round trip of the WAN link; 20ms.")] = None,
    dtype: Annotated[str, typer.Option(help="Data type of the model.")] = "float32",
    security: Annotated[
        str | None,
        typer.Option(
            help="What crosses regions: off, secret or mtls (docs/security.md); off, machines mtls."
        ),
    ] = None,
    local_backend: Annotated[
        str,
        typer.Option(help="How peers of one region send to each other: lanes, mooncake or nixl."),
    ] = "lanes",
    pipelining: Annotated[
        str, typer.Option(help="What a prefill sends once it is computed: each layer, or chunk.")
    ] = "layer",
    decode_cache: Annotated[
        bool,
        typer.Option(
            "--decode-cache", help="Decode keeps caches, so that prefills send only what is new."
        ),
    ] = False,
    role_switch: Annotated[
        bool,
        typer.Option(
            "--role-switch", help="Nodes may change their role (node role); with --decode-cache."
        ),
    ] = False,
    cache_events: Annotated[
        bool, typer.Option("--cache-events", help="Engines tell what they cache (node events).")
    ] = False,
    pool_bytes: Annotated[
        int,
        typer.Option(help="Bytes of each region's prefix pool (docs/prefix-pool.md); 0: none."),
    ] = 0,
    engine_arg: Annotated[
        list[str] | None, typer.Option(help="An argument for SGLang; repeat for more.")
    ] = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(help="A keys file (prfaasctl keys add): only its keys may ask the API."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="The API speaks TLS, by a certificate of its own CA.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(help="The API speaks TLS, by this PEM certificate.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of --tls-cert.")] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="Pages of this origin may use the API, * for all; repeat for more."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A number of the gateway, as gateway.drain_s=30 (docs/api.md); repeat."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until everything must serve.")] = 240.0,
    target: Annotated[
        str,
        typer.Option(help="emulated, or inventory: machines, by ansible (see docs/ansible.md)."),
    ] = "emulated",
    inventory: Annotated[
        Path | None, typer.Option(help="Machines: ansible's inventory of them.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Machines: only show what would change.")
    ] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Start emulated regions, the links, engines and gateway."""
    from prfaas_cli.deploy_gateway import parse_settings
    from prfaas_cli.deploy_topology import chosen_regions, read_topology
    from prfaas_cli.deploy_twin import default_threshold, parse_instances, parse_profiles
    from prfaas_cli.options import DeployOptions, check_options, find_model
    from prfaas_cli.output import Output

    place = Place.of(state_dir, name)
    check_target(target, inventory, regions, plan=plan)
    if inventory is not None:
        if api_keys or tls or tls_cert or tls_key or cors_origin or setting:
            raise ConfigError(
                "--api-keys, --tls, --tls-cert, --tls-key, --cors-origin, --set: not with"
                " --target inventory: the ansible role writes no [api]; see docs/api.md"
            )
        from prfaas_cli.deploy_inventory import InventoryChoices, deploy_inventory

        chosen = chosen_regions(regions, "")
        choices = InventoryChoices(
            inventory=inventory,
            regions=chosen,
            engine=engine,
            security=security,
            model=model,
            threshold_tokens=threshold,
            profiles=parse_profiles(profiles, len(chosen)),
            scale=scale,
            dilation=dilation,
        )
        output = Output(as_json=as_json)
        deploy_inventory(place, choices, output, plan=plan, timeout_s=max(timeout, 3600.0))
        return
    if topology is not None and (link_rate is not None or link_rtt is not None):
        raise ConfigError("--topology: says what the links are; leave --link-rate, --link-rtt out")
    topology_text = read_topology(topology)
    chosen = chosen_regions(regions, topology_text)
    options = DeployOptions(
        regions=chosen,
        model_path=find_model(model),
        port=port,
        threshold_tokens=default_threshold(engine) if threshold is None else threshold,
        link_rate=link_rate or DEFAULT_RATE,
        link_rtt=link_rtt or DEFAULT_RTT,
        dtype=dtype,
        engine_args=tuple(engine_arg or ()),
        security=security or "off",
        pipelining=pipelining,
        local_backend=local_backend,
        decode_cache=decode_cache or role_switch,
        role_switch=role_switch,
        cache_events=cache_events,
        engine=engine,
        instances=parse_instances(instances, len(chosen)),
        profiles=parse_profiles(profiles, len(chosen)),
        scale=scale,
        dilation=dilation,
        pool_bytes=pool_bytes,
        topology=topology_text,
        api_keys=_resolved(api_keys),
        tls=tls,
        tls_cert=_resolved(tls_cert),
        tls_key=_resolved(tls_key),
        cors_origins=tuple(dict.fromkeys(cors_origin or ())),
        settings=parse_settings(setting or ()),
    )
    check_options(name, options, timeout_s=timeout)
    _Deploy(place, options, Output(as_json=as_json), timeout_s=timeout).run()


def _resolved(file: Path | None) -> str:
    return "" if file is None else str(file.resolve())


def check_target(target: str, inventory: Path | None, regions: str | None, *, plan: bool) -> None:
    """Raise ConfigError unless the options of a target go with it."""
    if target not in ("emulated", "inventory"):
        raise ConfigError(f"--target {target}: allowed: emulated, inventory")
    if target == "inventory" and (inventory is None or regions is None):
        raise ConfigError("--target inventory: needs --inventory FILE and --regions")
    if target == "emulated" and (inventory is not None or plan):
        raise ConfigError("--inventory and --plan: allowed with --target inventory")


class _Deploy:
    """One run of the command."""

    def __init__(self, place: Place, options: Any, output: Any, *, timeout_s: float) -> None:
        self._place = place
        self._options = options
        self._output = output
        self._timeout_s = timeout_s

    def run(self) -> None:
        """Deploy, or find that it is deployed."""
        from prfaas_cli.preflight import check_machine

        running = self._place.read_deployment()
        if running is not None:
            self._require_same()
        warnings = check_machine(self._place, self._options, fresh=running is None)
        for warning in warnings:
            self._output.note(f"prfaasctl: warning: {warning}")
        with signals_interrupt(), self._place.locked():
            if self._place.read_deployment() != running:
                raise StateError(f"{self._place.name} changed just now; run the command again")
            self._run_locked(fresh=running is None)

    def _require_same(self) -> None:
        from prfaas_cli.deploy_lines import place_flags
        from prfaas_cli.observation import Observed

        differences = Observed.of(self._place).options.differences(self._options)
        if differences:
            raise StateError(
                f"{self._place.name} is deployed with other options ({'; '.join(differences)});"
                f" run prfaasctl destroy{place_flags(self._place)} first"
            )

    def _run_locked(self, *, fresh: bool) -> None:
        from prfaas_cli.bring_up import BringUp

        bring_up = BringUp(self._place, self._output)
        try:
            if self._is_all_well():
                self._give_result("nothing to do", bring_up.times)
                return
            self._bring_up(bring_up, fresh=fresh)
        except PrfaasError:
            if fresh:
                self._clean_up(keep_logs=True)
            raise
        except BaseException:
            # Ctrl-C, SIGTERM, a closed terminal or a defect: nothing half-made stays behind.
            if fresh:
                self._clean_up(keep_logs=False)
            raise
        self._give_result("deployed" if fresh else "repaired", bring_up.times)

    def _bring_up(self, bring_up: Any, *, fresh: bool) -> None:
        from prfaas_cli.deploy_lines import plan_lines
        from prfaas_cli.observation import Observed
        from prfaas_cli.preflight import find_program
        from prfaas_cli.process_plan import plan_deployment

        plan = plan_deployment(
            self._place,
            self._options,
            etcd=find_program("etcd") or "etcd",
            start_timeout_s=max(30.0, self._timeout_s),
        )
        if fresh:
            self._remove_leftovers()
            for line in plan_lines(self._place, self._options):
                self._output.note(line)
        else:
            self._output.note("deployed before; starting what is missing")
            self._end_homeless(plan)
        bring_up.write_files(plan, self._options, fresh=fresh)
        bring_up.make_regions(plan)
        if not Observed.of(self._place).supervisor()["alive"]:
            bring_up.start_supervisor()
        bring_up.wait_ready(timeout_s=self._timeout_s)

    def _remove_leftovers(self) -> None:
        """Remove what a deployment left whose directory was deleted."""
        from prfaas_cli.processes import deployment_processes
        from prfaas_cli.sweep import end_everything
        from prfaas_netem.owner import namespaces_of

        names = namespaces_of(self._place.name)
        if names or deployment_processes(self._place, names):
            self._output.note("removing what an earlier deployment of this name left")
            end_everything(self._place, say=self._output.step)

    def _end_homeless(self, plan: Any) -> None:
        """End all when a namespace is gone: what lives on in it can reach nobody."""
        from prfaas_cli.sweep import end_everything
        from prfaas_netem.owner import namespaces_of

        if set(namespaces_of(self._place.name)) != set(plan.topology.namespaces):
            self._output.note("namespaces are missing; starting all anew")
            end_everything(self._place, say=self._output.step)

    def _is_all_well(self) -> bool:
        from prfaas_cli.observation import Observed
        from prfaas_cli.status import problems_of

        if self._place.read_deployment() is None:
            return False
        return not problems_of(Observed.of(self._place))

    def _clean_up(self, *, keep_logs: bool) -> None:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        from prfaas_cli.sweep import sweep

        self._output.note("cleaning up")
        keep_logs = keep_logs and self._place.logs.exists() and any(self._place.logs.iterdir())
        sweep(self._place, keep_logs=keep_logs, say=self._output.step)
        if keep_logs:
            self._output.note(f"logs are kept in {self._place.logs}")

    def _give_result(self, outcome: str, times: dict[str, float]) -> None:
        from prfaas_cli.deploy_lines import result_lines
        from prfaas_cli.process_plan import api_url

        url = api_url(self._options)
        document = {
            "outcome": outcome,
            "name": self._place.name,
            "url": url,
            "directory": str(self._place.directory),
            "seconds": round(self._output.elapsed_s, 2),
            "done_at_s": times,
        }
        elapsed_s = self._output.elapsed_s
        self._output.result(
            document,
            lambda: result_lines(
                self._place, self._options, outcome, times=times, elapsed_s=elapsed_s
            ),
        )
