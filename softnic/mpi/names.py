"""The name service of ports: Publish_name, Lookup_name and Unpublish_name, for the processes of one user.

A name is a file, in the folder that SOFTNIC_NAMES names, such as one that all hosts share; without it, in the user's
folder for running programs on this host. It has the port, and the process that has published it: what a process leaves
behind when it ends can be published again.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from urllib.parse import quote

from softnic.comm.error_classes import ERR_NAME, ERR_SERVICE
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.info import INFO_NULL, Info

VARIABLE = "SOFTNIC_NAMES"
_MAX_NAME_BYTES = 255


def Publish_name(service_name: str, port_name: str, info: Info = INFO_NULL) -> None:
    """Publish the name of a port under the name of a service.

    Parameters
    ----------
    service_name
        What Lookup_name asks for.
    port_name
        Of Open_port.
    info
        Ignored.

    Raises
    ------
    MPI.Exception
        Of the class ERR_SERVICE, if the service is published already, and its process has not ended.
    """
    del info
    place = _place(service_name)
    entry = f"{port_name}\n{socket.gethostname()} {os.getpid()}\n"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.exists() and _is_alive(place):
            raise CommError(f"Publish_name: {service_name!r} is published already", code=ERR_SERVICE)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, prefix=".", delete=False) as file:
            file.write(entry)
        Path(file.name).replace(place)
    except OSError as error:
        raise CommError(f"Publish_name: {place}: {error.strerror or error}", code=ERR_SERVICE) from error


def Lookup_name(service_name: str, info: Info = INFO_NULL) -> str:
    """Return the name of the port of a service.

    Parameters
    ----------
    service_name
        As it was published.
    info
        Ignored.

    Raises
    ------
    MPI.Exception
        Of the class ERR_NAME, if no process has published it.
    """
    del info
    try:
        return _place(service_name).read_text().splitlines()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        raise CommError(f"Lookup_name: nobody has published {service_name!r}", code=ERR_NAME) from None


def Unpublish_name(service_name: str, port_name: str, info: Info = INFO_NULL) -> None:
    """Remove what Publish_name has published.

    Parameters
    ----------
    service_name, port_name
        As they were published.
    info
        Ignored.

    Raises
    ------
    MPI.Exception
        Of the class ERR_SERVICE, if that service has not this port.
    """
    del info
    place = _place(service_name)
    try:
        if place.read_text().splitlines()[:1] == [port_name]:
            place.unlink()
            return
    except (OSError, UnicodeDecodeError):
        pass
    raise CommError(f"Unpublish_name: {service_name!r} is not published with {port_name}", code=ERR_SERVICE)


def _place(service_name: str) -> Path:
    """Return the file of a name. Raises ArgumentError."""
    file = quote(str(service_name), safe="")
    if not 0 < len(file) <= _MAX_NAME_BYTES or file.startswith("."):
        raise ArgumentError(f"{service_name!r} is no name of a service", code=ERR_NAME)
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given) / file
    running = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(running) / f"softnic-names-{os.getuid()}" / file


def _is_alive(place: Path) -> bool:
    """Return whether the process that has published a name may still run."""
    try:
        host, number = place.read_text().splitlines()[1].split()
        if host == socket.gethostname():
            os.kill(int(number), 0)
    except (OSError, IndexError, ValueError):  # ValueError: it is nonsense
        return False
    return True
