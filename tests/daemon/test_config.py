"""The configuration: file, flags, and one line for each error in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from softnicd.config import Config, ConfigError, load, parser

MINIMAL = ["--ip", "10.77.0.1", "--control", "/tmp/x.sock"]


def configured(*flags: str) -> Config:
    return load(parser().parse_args(flags))


def test_defaults() -> None:
    config = configured(*MINIMAL)
    assert config.address == 0x0A4D0001
    assert config.label == "10.77.0.1"
    assert config.wire_address == ("::", 4789)
    assert config.offload_table == {0x28: "bounded:10"}
    assert config.peer_addresses == {}
    assert config.emulation_spec is None
    assert (config.vni, config.mtu, config.mode, config.seed) == (1, 1500, "fill", None)


def test_a_time_to_poll() -> None:
    assert configured(*MINIMAL).poll_s == 0
    assert configured(*MINIMAL, "--poll", "20us").poll_s == pytest.approx(20e-6)
    assert configured(*MINIMAL, "--poll", "off").poll_s == 0
    with pytest.raises(ConfigError, match="poll: 'soon'"):
        configured(*MINIMAL, "--poll", "soon")


def test_file_and_flags_are_equivalent_and_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        """
        name = "node0"
        ip = "10.77.0.1"
        control = "/tmp/x.sock"
        wire = "192.0.2.10:5000"
        mode = "packet"
        mtu = 9000
        vni = 7
        seed = 5
        [peers]
        "10.77.0.2" = "192.0.2.11:4789"
        [offloads]
        "0x28" = "bounded:10"
        "72" = "raw"
        [emulation]
        rate = "1gbit"
        delay = "50us"
        loss = "0.1%"
        """
    )
    by_file = configured("--config", str(file))
    by_flags = configured(
        *(*MINIMAL, "--name", "node0", "--wire", "192.0.2.10:5000", "--mode", "packet", "--mtu", "9000", "--vni", "7"),
        *("--seed", "5", "--peer", "10.77.0.2=192.0.2.11:4789", "--offload", "0x28=bounded:10", "--offload", "72=raw"),
        *("--rate", "1gbit", "--delay", "50us", "--loss", "0.1%"),
    )
    assert by_file == by_flags
    assert by_file.peer_addresses == {0x0A4D0002: ("192.0.2.11", 4789)}
    assert by_file.emulation_spec is not None
    assert (by_file.emulation_spec.rate_bps, by_file.emulation_spec.loss) == (1e9, 0.001)
    over = configured("--config", str(file), "--name", "other", "--peer", "10.77.0.3=h:1", "--loss", "0")
    assert over.name == "other"
    assert set(over.peers) == {"10.77.0.2", "10.77.0.3"}
    assert configured(*MINIMAL, "--offload", "0x28=auto").offload_table == {0x28: "auto:bounded:10"}
    for codec in ("bfp:7", "truncate:16", "auto:bfp:15"):
        assert configured(*MINIMAL, "--offload", f"0x28={codec}").offload_table == {0x28: codec}
    assert over.emulation == {"rate": "1gbit", "delay": "50us", "loss": "0"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "ip"),
        (["--ip", "10.77.0.1"], "control"),
        ([*MINIMAL, "--ip", "10.77.0"], "ip: '10.77.0' is not an IPv4 address"),
        ([*MINIMAL, "--control", "x" * 108], "control"),
        ([*MINIMAL, "--wire", "4789"], "wire: '4789' is not HOST:PORT"),
        ([*MINIMAL, "--wire", "h:70000"], "wire"),
        ([*MINIMAL, "--mode", "fast"], "mode"),
        ([*MINIMAL, "--mtu", "100"], "mtu"),
        ([*MINIMAL, "--mtu", "10000"], "mtu"),
        ([*MINIMAL, "--vni", "-1"], "vni"),
        ([*MINIMAL, "--peer", "10.77.0.2=here"], "peers: 10.77.0.2: 'here' is not HOST:PORT"),
        ([*MINIMAL, "--peer", "me=h:1"], "peers: 'me'"),
        ([*MINIMAL, "--peer", "10.77.0.1=h:1"], "peers: 10.77.0.1 is this node"),
        ([*MINIMAL, "--offload", "0x28=zip"], "offloads: 0x28 = 'zip'"),
        ([*MINIMAL, "--offload", "0x28=bfp:16"], "does not accept parameter 16 (it accepts 3..15)"),
        ([*MINIMAL, "--offload", "0x28=auto:raw"], "auto needs a codec that compresses, as in auto:bounded:10"),
        ([*MINIMAL, "--offload", "x=raw"], "offloads: x"),
        ([*MINIMAL, "--offload", "0x0=raw"], "offloads: "),
        ([*MINIMAL, "--offload", "0x28=raw", "--offload", "40=raw"], "offloads: "),
        ([*MINIMAL, "--congestion", "vegas"], "congestion: 'vegas' is not one of auto, cubic, reno, bbr"),
        ([*MINIMAL, "--rate", "fast"], "emulation: "),
        ([*MINIMAL, "--mode", "fil"], "mode: 'fil' is not one of fill, packet"),
        ([*MINIMAL, "--mtu", "10"], "mtu: expected int >= 576"),
        ([*MINIMAL, "--tap", "a-name-that-is-too-long"], "tap: expected str of length <= 15"),
        ([*MINIMAL, "--namespace", "1"], "tap is not set"),
        ([*MINIMAL, "--loss", "200%"], "emulation: "),
    ],
)
def test_an_error_is_one_line_that_names_the_key(flags: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=r"\w") as caught:
        configured(*flags)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ip = ", "node.toml"),
        ("ip = 5", "ip"),
        ("speed = 5", "speed: there is no such key; the keys are ip, control, wire,"),
        ("peers = 5", "peers"),
        ("[peers]\n'10.77.0.2' = 5", "peers"),
        ("[emulation]\nspeed = '1gbit'", "speed"),
        ("\xff", "node.toml"),
    ],
)
def test_an_error_in_a_file_names_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f"{text}\n", encoding="latin-1")
    given = MINIMAL if "ip =" not in text else MINIMAL[2:]
    with pytest.raises(ConfigError, match=r"node\.toml") as caught:
        configured("--config", str(file), *given)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_in_a_flag_does_not_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("mtu = 1450\n")
    with pytest.raises(ConfigError, match=r"^mtu: expected int >= 576$"):
        configured("--config", str(file), *MINIMAL, "--mtu", "10")
    with pytest.raises(ConfigError, match=r"^ip: it is not set: add it to the configuration or pass --ip$"):
        configured("--config", str(file))


def test_queues_are_a_number_or_one_for_every_two_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert configured(*MINIMAL).queue_count == 1
    assert configured(*MINIMAL, "--queues", "8").queue_count == 8
    file = tmp_path / "node.toml"
    file.write_text("queues = 3\n")
    assert configured("--config", str(file), *MINIMAL).queue_count == 3
    for wrong in ("0", "5", "9", "-1", "many", "2.0", "02", ""):
        with pytest.raises(ConfigError, match=r"^queues: .* is not one of 1, 2, 3, 4, 6, 8, auto$"):
            configured(*MINIMAL, f"--queues={wrong}")
    for cores, queues in ((1, 1), (2, 1), (4, 2), (16, 8), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cores=cores: set(range(cores)))
        assert configured(*MINIMAL, "--queues", "auto").queue_count == queues


def test_the_old_name_of_a_key_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("patience = '7s'\n")
    assert configured(*MINIMAL).peer_timeout_s == 4
    assert configured(*MINIMAL, "--config", str(file)).peer_timeout_s == 7
    assert configured(*MINIMAL, "--config", str(file), "--patience", "off").peer_timeout_s is None
    file.write_text("patience = '7s'\npeer_timeout = '8s'\n")
    with pytest.raises(ConfigError, match=r"node\.toml: patience is the old name of peer_timeout"):
        configured(*MINIMAL, "--config", str(file))


def test_the_command_prints_the_error_and_exits_with_2(tmp_path: Path) -> None:
    for flags in (["--config", str(tmp_path / "none.toml")], [*MINIMAL, "--mtu", "1"]):
        done = subprocess.run(
            [sys.executable, "-m", "softnicd", *flags], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith("softnicd: ")
        assert done.stderr.count("\n") == 1
