"""What a twin pretends to be: everything that its parts need to know, from its configuration."""

from dataclasses import asdict, dataclass, fields

from prfaas.config import NodeConfig
from prfaas.errors import ConfigError
from prfaas.identity import Identity
from prfaas.profile import InstanceProfile
from prfaas.profile.instance import DecodeProfile
from prfaas.twin_section import TwinSection
from prfaas_transport import TransportConfig
from prfaas_transport.security import channel_factory, read_secret
from prfaas_twin.kv_content import KvContent
from prfaas_twin.kv_shape import KvShape
from prfaas_twin.prefill_compute import PrefillLimits
from prfaas_twin.scaling import Scaling
from prfaas_twin.vocabulary import Vocabulary

#: The unit in which a decode grants its memory says nothing of tokens: to others, a page is one.
PAGE_TOKENS = 1


@dataclass(frozen=True, slots=True)
class TwinModel:
    """A node's configuration with all that follows from it."""

    config: NodeConfig
    section: TwinSection
    model_id: str
    profile: InstanceProfile
    scaling: Scaling
    content: KvContent
    vocabulary: Vocabulary

    @classmethod
    def of(
        cls, config: NodeConfig, profile: InstanceProfile, vocabulary: Vocabulary, model_id: str
    ) -> "TwinModel":
        """Return the model of a node.

        Raises:
            ConfigError: a value of the section is out of range.
        """
        section = config.twin or TwinSection()
        shape = KvShape.of(profile.kv_bytes, bytes_factor=section.scale, layers=section.layers)
        scaling = Scaling(section.scale, section.dilation)
        return cls(config, section, model_id, profile, scaling, KvContent(shape), vocabulary)

    @property
    def shape(self) -> KvShape:
        """The form of its caches."""
        return self.content.shape

    @property
    def prefill_limits(self) -> PrefillLimits:
        """How it batches prompts."""
        section = self.section
        return PrefillLimits(section.batch_tokens, section.chunk_tokens, section.layers)

    @property
    def decode_profile(self) -> DecodeProfile:
        """How it decodes.

        Raises:
            ConfigError: the profile is of an instance that only prefills.
        """
        decode = self.profile.decode
        if decode is None:
            name = self.profile.name
            raise ConfigError(f"twin.profile = {name!r}: it only prefills; a decode needs another")
        most = self.section.max_running_requests or decode.max_batch
        return DecodeProfile(decode.step_s, most)

    @property
    def max_running_requests(self) -> int:
        """How many requests it says it takes at a time."""
        decode = self.profile.decode
        return self.section.max_running_requests or (decode.max_batch if decode else 0)

    def transport(self) -> TransportConfig:
        """Return the settings of its lanes: one thread, for there may be hundreds of twins."""
        node, security = self.config.node, self.config.security
        transfer = self.config.transfer
        known = {field.name for field in fields(TransportConfig)}
        values = {key: value for key, value in asdict(transfer).items() if key in known}
        values["blank_groups"] = frozenset(transfer.blank_groups)
        identity = Identity(node.deployment, node.region, node.name)
        return TransportConfig(
            **values,
            io_threads=1,
            warm_bytes=0,
            checksums=None if transfer.digests == "auto" else transfer.digests == "on",
            channel_factory=channel_factory(security, identity),
            secret=read_secret(security),
        )
