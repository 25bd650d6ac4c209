"""A node of a cluster that is cut off, and comes back."""

from __future__ import annotations

import errno

import pytest

from softnic import Cluster, socket


@pytest.mark.parametrize("key", [False, True])
def test_nothing_passes_while_a_node_is_cut_off(key: bool) -> None:
    with Cluster(nodes=3, key=key) as cluster, socket.socket(nic=str(cluster.controls[1])) as listener:
        listener.bind(("", 5000))
        listener.listen()
        sender = socket.socket(nic=str(cluster.controls[0]))
        sender.connect(("10.77.0.2", 5000))
        receiver, _ = listener.accept()
        cluster.cut(1)
        sender.sendall(b"late")
        receiver.settimeout(0.5)
        with pytest.raises(TimeoutError):
            receiver.recv(4)
        cluster.mend(1)
        receiver.settimeout(60)
        assert receiver.recv(4) == b"late"
        cluster.cut(1)
        sender.sendall(b"lost")
        with pytest.raises(OSError, match="has not answered") as lost:
            receiver.recv(4)
        assert lost.value.errno == errno.ETIMEDOUT
        cluster.mend(1)
        with socket.socket(nic=str(cluster.controls[0])) as again:
            again.connect(("10.77.0.2", 5000))
            accepted, _ = listener.accept()
            again.sendall(b"new")
            assert accepted.recv(3) == b"new"
            accepted.close()
        sender.close()
        receiver.close()
