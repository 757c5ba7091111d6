# ruff: noqa: N802 - the plugin protocol names its calls
"""A stand-in for a Terraform provider: it has the schema of the real one and can make nothing.

`python schema_provider.py SCHEMA.json NAME` is what Terraform starts. With it, `validate`, `plan`
and `test` run offline and catch unknown arguments, wrong types, missing ones, bad blocks and
references. The schema of aws 6.69.1 in tests/data/terraform was read out of the package
cdktn-provider-aws 25.8.1; it knows types, not rules about values.
"""

import functools
import json
import sys
from pathlib import Path
from typing import Any

import grpc
import msgpack
from tf import provider as tf_provider
from tf.gen import tfplugin_pb2 as pb
from tf.runner import run_provider

_UNKNOWN = msgpack.ExtType(0, b"\x00")
_REFUSED = "this is an offline stand-in with the provider's schema only; it makes nothing"


def block(raw: dict[str, Any]) -> Any:
    """Return a block of the plugin protocol."""
    attributes = [
        pb.Schema.Attribute(
            name=name,
            type=json.dumps(each["type"]).encode(),
            required=each["required"],
            optional=each["optional"],
            computed=each["computed"],
        )
        for name, each in raw["attributes"].items()
    ]
    nested = [
        pb.Schema.NestedBlock(
            type_name=name,
            nesting=getattr(pb.Schema.NestedBlock.NestingMode, each["mode"]),
            min_items=each["min"],
            max_items=each["max"],
            block=block(each["block"]),
        )
        for name, each in raw["blocks"].items()
    ]
    return pb.Schema.Block(attributes=attributes, block_types=nested)


def schema(raw: dict[str, Any]) -> Any:
    """Return a schema of the plugin protocol."""
    return pb.Schema(version=0, block=block(raw))


class SchemaProvider:
    """The calls of the plugin protocol that reading and planning need."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = raw

    def GetMetadata(self, _request: Any, _context: Any) -> Any:
        """Say which types there are."""
        resources = [pb.GetMetadata.ResourceMetadata(type_name=n) for n in self._raw["resource"]]
        sources = [pb.GetMetadata.DataSourceMetadata(type_name=n) for n in self._raw["data"]]
        return pb.GetMetadata.Response(resources=resources, data_sources=sources)

    def GetProviderSchema(self, _request: Any, _context: Any) -> Any:
        """Give the whole schema."""
        return pb.GetProviderSchema.Response(
            provider=schema(self._raw["provider"]),
            resource_schemas={name: schema(raw) for name, raw in self._raw["resource"].items()},
            data_source_schemas={name: schema(raw) for name, raw in self._raw["data"].items()},
        )

    def ValidateProviderConfig(self, _request: Any, _context: Any) -> Any:
        """Accept what fits the schema; Terraform has checked that."""
        return pb.ValidateProviderConfig.Response()

    def ValidateResourceConfig(self, _request: Any, _context: Any) -> Any:
        """Accept what fits the schema."""
        return pb.ValidateResourceConfig.Response()

    def ValidateDataResourceConfig(self, _request: Any, _context: Any) -> Any:
        """Accept what fits the schema."""
        return pb.ValidateDataResourceConfig.Response()

    def ConfigureProvider(self, _request: Any, _context: Any) -> Any:
        """Take any configuration."""
        return pb.ConfigureProvider.Response()

    def ReadResource(self, request: Any, _context: Any) -> Any:
        """Say that all is as it was."""
        return pb.ReadResource.Response(new_state=request.current_state)

    def PlanResourceChange(self, request: Any, _context: Any) -> Any:
        """Plan what is asked for; what AWS would fill in is not known yet."""
        proposed = request.proposed_new_state
        value = msgpack.unpackb(proposed.msgpack, raw=False, strict_map_key=False)
        if value is None:
            return pb.PlanResourceChange.Response(planned_state=proposed)
        for name, each in self._raw["resource"][request.type_name]["attributes"].items():
            if each["computed"] and value.get(name) is None:
                value[name] = _UNKNOWN
        state = pb.DynamicValue(msgpack=msgpack.packb(value))
        return pb.PlanResourceChange.Response(planned_state=state)

    def ApplyResourceChange(self, _request: Any, _context: Any) -> Any:
        """Refuse."""
        error = pb.Diagnostic(severity=pb.Diagnostic.ERROR, summary=_REFUSED)
        return pb.ApplyResourceChange.Response(diagnostics=[error])

    def GetFunctions(self, _request: Any, _context: Any) -> Any:
        """Have none."""
        return pb.GetFunctions.Response()

    def StopProvider(self, _request: Any, _context: Any) -> Any:
        """End."""
        return pb.StopProvider.Response()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def unimplemented(_request: Any, context: Any) -> None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, name)

        return unimplemented


class _Named:
    """What `run_provider` asks of a provider besides its calls."""

    def __init__(self, name: str) -> None:
        self._name = name

    def full_name(self) -> str:
        """Return the provider's address."""
        return f"registry.terraform.io/hashicorp/{self._name}"


def main(path: str, name: str) -> None:
    """Serve until Terraform ends it."""
    raw = json.loads(Path(path).read_text())
    tf_provider.ProviderServicer = lambda _provider: SchemaProvider(raw)
    # A schema is larger than what grpc takes as a message by default.
    unlimited = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
    ]
    grpc.server = functools.partial(grpc.server, options=unlimited)
    run_provider(_Named(name), ["provider"])


if __name__ == "__main__":
    main(*sys.argv[1:])
