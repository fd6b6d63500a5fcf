"""Programs as graphs, built node by node: stage, the launches' nodes, record, in one chain.

A program's graph is built once and instantiated for each frame, with the few parameters changed
that differ between frames. A node that may begin early has a programmatic edge from the one before
it, for which it waits itself. Nothing of this happens while rounds run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from helios.phases import Phases
from helios.runtime.device import FRAMES
from helios.runtime.devices.cuda.arguments import ParameterBlock, ResolvedNode
from helios.runtime.devices.cuda.driver import SUCCESS, DriverError, failure
from helios.runtime.devices.cuda.gpu import Gpu

# What a programmatic edge is, in the driver's numbers.
_PROGRAMMATIC: Final = 1
_PROGRAMMATIC_PORT: Final = 1


class GraphBuilder:
    """Makes the executable graphs of one program after the other."""

    def __init__(self, gpu: Gpu, phases: Phases) -> None:
        self._gpu = gpu
        self._phases = phases
        driver = gpu.driver
        self._block = ParameterBlock()
        # One object of each kind, filled anew for every node: making them costs more than a node.
        self._node = driver.CUgraphNodeParams()
        self._node.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        self._changed = driver.CUDA_KERNEL_NODE_PARAMS()
        edge = driver.CUgraphEdgeData()
        edge.type = _PROGRAMMATIC
        edge.from_port = _PROGRAMMATIC_PORT
        self._early, self._full = [edge], [driver.CUgraphEdgeData()]

    def build(self, nodes: Sequence[ResolvedNode], name: str) -> tuple[Any, ...]:
        """An executable for each frame. Raises DriverError that names the program, and the node
        where it is one's fault."""
        gpu, driver = self._gpu, self._gpu.driver
        graph = gpu.call("making a graph", driver.cuGraphCreate, 0)
        executables: list[Any] = []
        try:
            with self._phases("graph_nodes"):
                handles = self._add(graph, nodes, name)
            for frame in range(FRAMES):
                for number, node in enumerate(nodes):
                    if node.values[frame] is not node.values[0]:
                        self._change(handles[number], node, frame, f"{name}, node {number}")
                with self._phases("graph_instantiation"):
                    executable = gpu.call(
                        f"instantiating program {name}", driver.cuGraphInstantiate, graph, 0
                    )
                executables.append(executable)
                with self._phases("graph_upload"):
                    gpu.call(
                        f"uploading program {name}", driver.cuGraphUpload, executable, gpu.stream
                    )
        except BaseException:
            for executable in executables:
                driver.cuGraphExecDestroy(executable)
            raise
        finally:
            driver.cuGraphDestroy(graph)
        return tuple(executables)

    def _add(self, graph: Any, nodes: Sequence[ResolvedNode], name: str) -> list[Any]:
        driver, block = self._gpu.driver, self._block
        parameters = self._node
        kernel = parameters.kernel
        kernel.blockDimY = kernel.blockDimZ = 1
        kernel.kernelParams = block.address
        handles: list[Any] = []
        add = driver.cuGraphAddNode
        for node in nodes:
            block.fill(node, 0)
            _describe(kernel, node)
            if handles:
                edges = self._early if node.programmatic else self._full
                status, handle = add(graph, handles[-1:], edges, 1, parameters)
            else:
                status, handle = add(graph, None, None, 0, parameters)
            if status != SUCCESS:
                raise self._refused(int(status), f"{name}, node {len(handles)}", node)
            handles.append(handle)
        return handles

    def _change(self, handle: Any, node: ResolvedNode, frame: int, where: str) -> None:
        kernel = self._changed
        self._block.fill(node, frame)
        kernel.blockDimY = kernel.blockDimZ = 1
        kernel.kernelParams = self._block.address
        _describe(kernel, node)
        (status,) = self._gpu.driver.cuGraphKernelNodeSetParams(handle, kernel)
        if status != SUCCESS:
            raise self._refused(int(status), where, node)

    def _refused(self, status: int, where: str, node: ResolvedNode) -> DriverError:
        error = failure(self._gpu.driver, status, f"building program {where}")
        function = node.function
        error.what += (
            f" (function {function.name}, grid {node.grid}, {function.threads} threads,"
            f" {function.shared_nbytes} bytes of shared memory)"
        )
        return DriverError(
            error.what, where=error.where, remedy=error.remedy, code=error.code, lost=error.lost
        )


def _describe(kernel: Any, node: ResolvedNode) -> None:
    function = node.function
    kernel.func = function.handle
    kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ = node.grid
    kernel.blockDimX = function.threads
    kernel.sharedMemBytes = function.shared_nbytes
