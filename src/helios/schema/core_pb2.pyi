from helios.schema import contract_pb2 as _contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOURCE_KIND_UNSPECIFIED: _ClassVar[ResourceKind]
    RESOURCE_KIND_EXECUTION_MANIFEST: _ClassVar[ResourceKind]
    RESOURCE_KIND_TOKENIZER: _ClassVar[ResourceKind]
    RESOURCE_KIND_CHAT_TEMPLATE: _ClassVar[ResourceKind]
    RESOURCE_KIND_ORACLE: _ClassVar[ResourceKind]
    RESOURCE_KIND_MODULE: _ClassVar[ResourceKind]
    RESOURCE_KIND_WEIGHTS: _ClassVar[ResourceKind]
RESOURCE_KIND_UNSPECIFIED: ResourceKind
RESOURCE_KIND_EXECUTION_MANIFEST: ResourceKind
RESOURCE_KIND_TOKENIZER: ResourceKind
RESOURCE_KIND_CHAT_TEMPLATE: ResourceKind
RESOURCE_KIND_ORACLE: ResourceKind
RESOURCE_KIND_MODULE: ResourceKind
RESOURCE_KIND_WEIGHTS: ResourceKind

class SignedEnvelope(_message.Message):
    __slots__ = ("body", "public_key", "signature", "index")
    BODY_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    public_key: bytes
    signature: bytes
    index: bytes
    def __init__(self, body: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., index: _Optional[bytes] = ...) -> None: ...

class CarrierHead(_message.Message):
    __slots__ = ("version", "publisher")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    version: int
    publisher: Publisher
    def __init__(self, version: _Optional[int] = ..., publisher: _Optional[_Union[Publisher, _Mapping]] = ...) -> None: ...

class CoreBody(_message.Message):
    __slots__ = ("format_version", "publisher", "deployment", "executable_resources", "weight_resources")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    publisher: Publisher
    deployment: DeploymentBody
    executable_resources: _containers.RepeatedCompositeFieldContainer[ExecutableResource]
    weight_resources: _containers.RepeatedCompositeFieldContainer[WeightResource]
    def __init__(self, format_version: _Optional[int] = ..., publisher: _Optional[_Union[Publisher, _Mapping]] = ..., deployment: _Optional[_Union[DeploymentBody, _Mapping]] = ..., executable_resources: _Optional[_Iterable[_Union[ExecutableResource, _Mapping]]] = ..., weight_resources: _Optional[_Iterable[_Union[WeightResource, _Mapping]]] = ...) -> None: ...

class Publisher(_message.Message):
    __slots__ = ("namespace", "licence_terms")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LICENCE_TERMS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    licence_terms: str
    def __init__(self, namespace: _Optional[str] = ..., licence_terms: _Optional[str] = ...) -> None: ...

class DeploymentBody(_message.Message):
    __slots__ = ("contract", "tokenizer_resource", "template_resource", "oracle_resource", "targets", "rebuild")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ORACLE_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    REBUILD_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.ServingContract
    tokenizer_resource: str
    template_resource: str
    oracle_resource: str
    targets: _containers.RepeatedCompositeFieldContainer[DeploymentTarget]
    rebuild: RebuildManifest
    def __init__(self, contract: _Optional[_Union[_contract_pb2.ServingContract, _Mapping]] = ..., tokenizer_resource: _Optional[str] = ..., template_resource: _Optional[str] = ..., oracle_resource: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[DeploymentTarget, _Mapping]]] = ..., rebuild: _Optional[_Union[RebuildManifest, _Mapping]] = ...) -> None: ...

class DeploymentTarget(_message.Message):
    __slots__ = ("name", "ranks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ranks: _containers.RepeatedCompositeFieldContainer[RankResources]
    def __init__(self, name: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankResources, _Mapping]]] = ...) -> None: ...

class RankResources(_message.Message):
    __slots__ = ("manifest_resource", "weight_resources", "module_resources", "weight_catalog")
    MANIFEST_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    MODULE_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_CATALOG_FIELD_NUMBER: _ClassVar[int]
    manifest_resource: str
    weight_resources: _containers.RepeatedScalarFieldContainer[str]
    module_resources: _containers.RepeatedScalarFieldContainer[str]
    weight_catalog: WeightCatalog
    def __init__(self, manifest_resource: _Optional[str] = ..., weight_resources: _Optional[_Iterable[str]] = ..., module_resources: _Optional[_Iterable[str]] = ..., weight_catalog: _Optional[_Union[WeightCatalog, _Mapping]] = ...) -> None: ...

class StoredFrame(_message.Message):
    __slots__ = ("nbytes", "sha256")
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    sha256: bytes
    def __init__(self, nbytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ExecutableResource(_message.Message):
    __slots__ = ("id", "kind", "stored", "decoded_nbytes", "chunk_nbytes", "chunk_sha256")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    DECODED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SHA256_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: ResourceKind
    stored: StoredFrame
    decoded_nbytes: int
    chunk_nbytes: int
    chunk_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[ResourceKind, str]] = ..., stored: _Optional[_Union[StoredFrame, _Mapping]] = ..., decoded_nbytes: _Optional[int] = ..., chunk_nbytes: _Optional[int] = ..., chunk_sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class WeightResource(_message.Message):
    __slots__ = ("id", "nbytes", "alignment", "chunk_nbytes", "chunk_sha256")
    ID_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SHA256_FIELD_NUMBER: _ClassVar[int]
    id: str
    nbytes: int
    alignment: int
    chunk_nbytes: int
    chunk_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[str] = ..., nbytes: _Optional[int] = ..., alignment: _Optional[int] = ..., chunk_nbytes: _Optional[int] = ..., chunk_sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LocationSet(_message.Message):
    __slots__ = ("locations",)
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    locations: _containers.RepeatedCompositeFieldContainer[Location]
    def __init__(self, locations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("resource", "uris")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    URIS_FIELD_NUMBER: _ClassVar[int]
    resource: str
    uris: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource: _Optional[str] = ..., uris: _Optional[_Iterable[str]] = ...) -> None: ...

class RebuildManifest(_message.Message):
    __slots__ = ("version", "recipe", "options", "tools", "sources")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ToolsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    version: int
    recipe: str
    options: _containers.ScalarMap[str, str]
    tools: _containers.ScalarMap[str, str]
    sources: _containers.RepeatedCompositeFieldContainer[SourceFile]
    def __init__(self, version: _Optional[int] = ..., recipe: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., tools: _Optional[_Mapping[str, str]] = ..., sources: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ...) -> None: ...

class SourceFile(_message.Message):
    __slots__ = ("name", "nbytes", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    nbytes: int
    sha256: bytes
    def __init__(self, name: _Optional[str] = ..., nbytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class WeightCatalog(_message.Message):
    __slots__ = ("version", "views")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    views: _containers.RepeatedCompositeFieldContainer[WeightView]
    def __init__(self, version: _Optional[int] = ..., views: _Optional[_Iterable[_Union[WeightView, _Mapping]]] = ...) -> None: ...

class WeightView(_message.Message):
    __slots__ = ("tensor", "buffer", "storage")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    tensor: str
    buffer: str
    storage: str
    def __init__(self, tensor: _Optional[str] = ..., buffer: _Optional[str] = ..., storage: _Optional[str] = ...) -> None: ...

class ProtectedIndex(_message.Message):
    __slots__ = ("version", "publisher", "model", "frames", "encrypted", "weights", "key_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    publisher: Publisher
    model: ModelIndex
    frames: _containers.RepeatedCompositeFieldContainer[ExecutableResource]
    encrypted: _containers.RepeatedCompositeFieldContainer[EncryptedResource]
    weights: _containers.RepeatedCompositeFieldContainer[WeightResource]
    key_id: bytes
    def __init__(self, version: _Optional[int] = ..., publisher: _Optional[_Union[Publisher, _Mapping]] = ..., model: _Optional[_Union[ModelIndex, _Mapping]] = ..., frames: _Optional[_Iterable[_Union[ExecutableResource, _Mapping]]] = ..., encrypted: _Optional[_Iterable[_Union[EncryptedResource, _Mapping]]] = ..., weights: _Optional[_Iterable[_Union[WeightResource, _Mapping]]] = ..., key_id: _Optional[bytes] = ...) -> None: ...

class ModelIndex(_message.Message):
    __slots__ = ("contract", "tokenizer_resource", "template_resource", "oracle_resource", "targets", "rebuild")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ORACLE_RESOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    REBUILD_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.ServingContract
    tokenizer_resource: str
    template_resource: str
    oracle_resource: str
    targets: _containers.RepeatedCompositeFieldContainer[DeploymentTarget]
    rebuild: RebuildManifest
    def __init__(self, contract: _Optional[_Union[_contract_pb2.ServingContract, _Mapping]] = ..., tokenizer_resource: _Optional[str] = ..., template_resource: _Optional[str] = ..., oracle_resource: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[DeploymentTarget, _Mapping]]] = ..., rebuild: _Optional[_Union[RebuildManifest, _Mapping]] = ...) -> None: ...

class EncryptedResource(_message.Message):
    __slots__ = ("id", "kind", "decoded_nbytes", "chunk_nbytes", "nonce_prefix", "chunk_count", "chunk_sha256")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DECODED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_NBYTES_FIELD_NUMBER: _ClassVar[int]
    NONCE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    CHUNK_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SHA256_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: ResourceKind
    decoded_nbytes: int
    chunk_nbytes: int
    nonce_prefix: bytes
    chunk_count: int
    chunk_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[ResourceKind, str]] = ..., decoded_nbytes: _Optional[int] = ..., chunk_nbytes: _Optional[int] = ..., nonce_prefix: _Optional[bytes] = ..., chunk_count: _Optional[int] = ..., chunk_sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Oracle(_message.Message):
    __slots__ = ("logprob_tolerance", "cases")
    LOGPROB_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    CASES_FIELD_NUMBER: _ClassVar[int]
    logprob_tolerance: float
    cases: _containers.RepeatedCompositeFieldContainer[OracleCase]
    def __init__(self, logprob_tolerance: _Optional[float] = ..., cases: _Optional[_Iterable[_Union[OracleCase, _Mapping]]] = ...) -> None: ...

class OracleCase(_message.Message):
    __slots__ = ("prompt_tokens", "expected_tokens", "expected_logprobs", "smallest_lead")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SMALLEST_LEAD_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: _containers.RepeatedScalarFieldContainer[int]
    expected_tokens: _containers.RepeatedScalarFieldContainer[int]
    expected_logprobs: _containers.RepeatedScalarFieldContainer[float]
    smallest_lead: float
    def __init__(self, prompt_tokens: _Optional[_Iterable[int]] = ..., expected_tokens: _Optional[_Iterable[int]] = ..., expected_logprobs: _Optional[_Iterable[float]] = ..., smallest_lead: _Optional[float] = ...) -> None: ...
