"""What a node has beside its devices, and the file system that the nodes of a cluster share."""

from typing import Annotated

from pydantic import Field, model_validator

from core.loading import Strict
from core.quantities import Bandwidth, Positive
from core.sources import Sourced


class SolidStates(Strict):
    """The local SSDs of a node that jobs may use, all of one kind."""

    count: Annotated[int, Field(ge=0, le=4096)]
    """0: the nodes have none."""
    bytes: Positive
    """Capacity of one SSD."""
    write_bytes_s: Bandwidth
    """Rate of sequential writes to one SSD."""
    read_bytes_s: Bandwidth
    """Rate of sequential reads from one SSD."""


class Node(Sourced):
    """Hosts and local storage of a node; every number has a source, every key may be left out."""

    host_bytes: Positive | None = None
    """Memory of the node's hosts."""
    host_copy_bytes_s: Bandwidth | None = None
    """Rate of copies between host memory and all devices of the node together, in one direction."""
    pcie_roots: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Links between devices and hosts: devices behind one switch share its link."""
    ssds: SolidStates | None = None
    cpu_adam_s_per_billion: Positive | None = None
    """Seconds that the node's CPUs take for the Adam update of 1e9 parameters, all cores at work."""


class FileSystem(Sourced):
    """A file system that all nodes write to and read from."""

    write_bytes_s: Bandwidth
    """All clients together."""
    read_bytes_s: Bandwidth
    client_write_bytes_s: Bandwidth | None = None
    """One node; by default its NICs are the limit."""
    client_read_bytes_s: Bandwidth | None = None

    @model_validator(mode="after")
    def _clients_below_all(self) -> "FileSystem":
        for name in ("write_bytes_s", "read_bytes_s"):
            client, total = getattr(self, f"client_{name}"), getattr(self, name)
            if client is not None and client > total:
                raise ValueError(f"client_{name}: one client cannot exceed all of them, {total:g} B/s")
        return self
