"""The sample manifest for a cuda target: every launch has a node, with arguments of every kind.

For what decodes and checks; devices take another one (`tests.standin_driver.cuda_manifest`).
"""

from __future__ import annotations

from helios.schema import execution_pb2 as pb
from tests.runtime.sample_manifest import sample_manifest
from tests.standin_driver.cuda_manifest import TRANSPORT, WORK, as_cuda

MODULES = (TRANSPORT, WORK)


def sample_cuda_manifest() -> pb.ExecutionManifest:
    """A fresh valid message."""
    message, _ = as_cuda(sample_manifest(), all_kinds_everywhere=True)
    return message
