"""The emulated link: loss, duplication, reordering, corruption and delivery time of each frame."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.link.emulation import AHEAD, BURST, TOGETHER, EmulatedLink, EmulationCounters
from softnic.link.emulation_spec import COALESCE_S, EmulationSpec
from softnic.sim.clock import VirtualClock
from tests.link.doubles import Recorder, number_of, numbered

FRAME = 1514


def emulated(spec: EmulationSpec, seed: int = 1) -> tuple[EmulatedLink, Recorder]:
    inner = Recorder()
    return EmulatedLink(inner, spec, seed=seed), inner


def drain(link: EmulatedLink, now: float = 0.0) -> float:
    """Deliver every frame in the link exactly on time; return the time of the last one."""
    clock = VirtualClock(now)
    clock.run([link], lambda: link.next_time() is None, limit_s=3600.0)
    return clock.now


class TestSpec:
    def test_rates_and_times_are_parsed(self) -> None:
        texts = {"rate": "1gbit", "delay": "50us", "jitter": "5us", "loss": "0.1%", "duplicate": "0.01"}
        more = {"reorder": "5%", "corrupt": "0%", "limit": "256kb", "coalesce": "0s"}
        assert asdict(EmulationSpec.parse({**texts, **more})) == pytest.approx(
            {
                "rate_bps": 1e9,
                "delay_s": 50e-6,
                "jitter_s": 5e-6,
                "loss": 0.001,
                "duplicate": 0.01,
                "reorder": 0.05,
                "corrupt": 0.0,
                "limit_bytes": 256_000,
                "coalesce_s": 0.0,
            }
        )
        assert EmulationSpec.parse({}) == EmulationSpec()

    @pytest.mark.parametrize(
        ("key", "text", "words"),
        [
            ("rate", "fast", "rate: 'fast' is not a rate"),
            ("rate", "0gbit", "rate_bps must be more than 0"),
            ("delay", "50", "delay: '50' is not a time"),
            ("loss", "101%", "loss: '101%' is not a probability"),
            ("limit", "0b", "limit_bytes must be more than 0"),
            ("speed", "1gbit", "'speed' is not a property of a link: use one of rate, delay"),
        ],
    )
    def test_an_error_names_the_invalid_value(self, key: str, text: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            EmulationSpec.parse({key: text})

    @pytest.mark.parametrize("name", ["loss", "duplicate", "reorder", "corrupt"])
    @pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
    def test_rejects_numbers_that_are_not_probabilities(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=name):
            EmulationSpec(**{name: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["delay_s", "jitter_s", "coalesce_s"])
    @pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
    def test_rejects_numbers_that_are_not_times(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=name):
            EmulationSpec(**{name: value})  # type: ignore[arg-type]

    def test_rejects_a_limit_below_four_frames(self) -> None:
        with pytest.raises(ValueError, match="at least 4 frames of 1514 bytes"):
            emulated(EmulationSpec(limit_bytes=4 * FRAME - 1))
        link, _ = emulated(EmulationSpec(rate_bps=1e6, limit_bytes=4 * FRAME))
        assert link.tx_space(0.0) >= FRAME


class TestTime:
    def test_without_rate_and_delay_frames_leave_at_once(self) -> None:
        link, inner = emulated(EmulationSpec())
        link.send(numbered(0, 3), 5.0)
        link.send(numbered(3, 1), 5.0)
        assert inner.sent == [(5.0, data) for data in numbered(0, 4)]
        assert link.next_time() is None

    def test_delay(self) -> None:
        link, inner = emulated(EmulationSpec(delay_s=1.5))
        link.send(numbered(0, 2), 10.0)
        assert link.next_time() == 11.5
        link.advance(11.49)
        assert inner.sent == []
        link.advance(11.5)
        assert [time for time, _ in inner.sent] == [11.5, 11.5]
        assert link.next_time() is None

    def test_rate_spaces_frames_by_their_size(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=8000, coalesce_s=0.0))
        link.send(numbered(0, 1, 1000), 0.0)
        link.send(numbered(1, 1, 500), 0.0)
        link.send(numbered(2, 1, 1500), 0.25)
        drain(link)
        assert [time for time, _ in inner.sent] == [1.0, 1.5, 3.0]

    def test_idle_time_is_not_credited_to_the_rate(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=8000, delay_s=0.5))
        link.send(numbered(0, 1, 1000), 0.0)
        drain(link)
        link.send(numbered(1, 1, 1000), 7.0)
        drain(link, 7.0)
        assert [time for time, _ in inner.sent] == [1.5, 8.5]

    def test_a_late_caller_gets_all_due_frames_and_the_rate_is_kept(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=8000, coalesce_s=0.0))
        link.send(numbered(0, 6, 1000), 0.0)
        link.advance(2.75)
        assert inner.numbers == [0, 1]
        assert link.next_time() == 3.0
        link.send(numbered(6, 1, 1000), 2.75)
        assert drain(link, 2.75) == 7.0

    def test_frames_leave_in_bursts_under_load_and_on_time_otherwise(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=8e6, coalesce_s=1e-3))
        link.send(numbered(0, 8, 1000), 0.0)
        drain(link)
        assert [round(time * 1e3, 6) for time, _ in inner.sent] == [1, 1, 3, 3, 5, 5, 7, 8]
        link.send(numbered(8, 1, 1000), 1.0)
        drain(link, 1.0)
        assert [time for time, _ in inner.sent][8:] == [1.001]

    def test_frames_due_within_the_timer_resolution_leave_at_once(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=1e9))
        link.send(numbered(0, 1, 66), 1.0)
        assert [time for time, _ in inner.sent] == [1.0]

    @pytest.mark.parametrize("delay_s", [0.0, 50e-6, 5e-3])
    def test_a_long_queue_leaves_in_long_bursts_and_its_last_frame_on_time(self, delay_s: float) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=1e9, delay_s=delay_s))
        frame_s = FRAME * 8 / 1e9
        for first in range(0, 600, 200):
            link.send(numbered(first, 200), 0.0)
        drain(link)
        times = np.array([time for time, _ in inner.sent])
        early = delay_s + np.arange(1, 601) * frame_s - times
        left = (600 - np.arange(600)) * frame_s
        assert inner.numbers == list(range(600))
        assert times.min() >= delay_s
        assert early.max() <= AHEAD * COALESCE_S + 1e-9
        assert (early <= np.maximum(TOGETHER * COALESCE_S, BURST / (1 - BURST) * left) + 1e-9).all()
        assert -COALESCE_S - 1e-9 <= early[-1] <= TOGETHER * COALESCE_S
        assert len(set(times)) < 15

    def test_a_frame_after_a_pause_does_not_advance_earlier_frames(self) -> None:
        """An acknowledgement that enters when the queue has drained, while the queue's frames are still on their way:
        the departure times of the queue do not change."""

        def times(pause_s: float | None) -> list[float]:
            link, inner = emulated(EmulationSpec(rate_bps=1e9, delay_s=5e-3))
            link.send(numbered(0, 40), 0.0)
            if pause_s is not None:
                drained = 40 * FRAME * 8 / 1e9
                link.send(numbered(40, 1), drained + pause_s)
            drain(link, 1e-3)
            return [time for time, _ in inner.sent][:40]

        alone = times(None)
        assert alone[-1] >= 5e-3 + 40 * FRAME * 8 / 1e9 - TOGETHER * COALESCE_S
        assert times(1e-4) == alone
        assert times(4e-4) == alone

    def test_a_short_queue_does_not_cut_the_delay_short(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=1e9, delay_s=1e-3))
        for number in range(40):
            link.send(numbered(5 * number, 5), number * 50e-6)
            link.advance(number * 50e-6)
        drain(link, 39 * 50e-6)
        assert inner.numbers == list(range(200))
        assert all(time >= number // 5 * 50e-6 + 1e-3 for number, (time, _) in enumerate(inner.sent))

    def test_jitter_stays_within_its_bounds_and_keeps_the_order(self) -> None:
        link, inner = emulated(EmulationSpec(delay_s=1e-3, jitter_s=4e-4, coalesce_s=0.0))
        clock = VirtualClock()
        for number in range(200):
            link.send(numbered(number, 1), clock.now)
            clock.run_for([link], 1e-3)
        clock.run_for([link], 1.0)
        taken = np.array([time for time, _ in inner.sent]) - np.arange(200) * 1e-3
        assert inner.numbers == list(range(200))
        assert taken.min() >= 0.6e-3 - 1e-9
        assert taken.max() <= 1.4e-3 + 1e-9
        assert taken.std() > 1e-4

    def test_jitter_larger_than_the_delay_ends_at_no_delay(self) -> None:
        link, inner = emulated(EmulationSpec(jitter_s=1.0, coalesce_s=0.0))
        for number in range(20):
            link.send(numbered(number, 1), number * 10.0)
            drain(link, number * 10.0)
        times = [time - 10.0 * index for index, (time, _) in enumerate(inner.sent)]
        assert min(times) == 0.0
        assert 0.0 < max(times) <= 1.0


class TestFate:
    """Frequencies over 20,000 frames, within five standard deviations (exceeded by one run in a million)."""

    COUNT = 20_000

    def fate(self, spec: EmulationSpec, seed: int = 3) -> tuple[EmulationCounters, list[int]]:
        link, inner = emulated(spec, seed)
        for first in range(0, self.COUNT, 100):
            link.send(numbered(first, 100, 64), first * 1e-6)
        drain(link, self.COUNT * 1e-6)
        return link.counted, inner.numbers

    def expect(self, count: int, probability: float) -> None:
        deviation = math.sqrt(self.COUNT * probability * (1 - probability))
        assert abs(count - self.COUNT * probability) < 5 * deviation

    def test_loss(self) -> None:
        counted, numbers = self.fate(EmulationSpec(loss=0.03))
        self.expect(counted.lost, 0.03)
        assert counted == EmulationCounters(sent=self.COUNT, lost=counted.lost)
        assert len(numbers) == self.COUNT - counted.lost
        assert numbers == sorted(set(numbers))

    def test_loss_of_all_frames(self) -> None:
        counted, numbers = self.fate(EmulationSpec(loss=1.0))
        assert counted == EmulationCounters(sent=self.COUNT, lost=self.COUNT)
        assert numbers == []

    def test_duplicates_follow_their_originals(self) -> None:
        counted, numbers = self.fate(EmulationSpec(duplicate=0.01))
        self.expect(counted.duplicated, 0.01)
        assert counted == EmulationCounters(sent=self.COUNT, duplicated=counted.duplicated)
        assert len(numbers) == self.COUNT + counted.duplicated
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(self.COUNT))

    @pytest.mark.parametrize("rate_bps", [None, 1e9])
    def test_reordered_frames_arrive_slightly_late(self, rate_bps: float | None) -> None:
        counted, numbers = self.fate(EmulationSpec(reorder=0.05, rate_bps=rate_bps, limit_bytes=10**7))
        self.expect(counted.reordered, 0.05)
        assert counted == EmulationCounters(sent=self.COUNT, reordered=counted.reordered)
        assert sorted(numbers) == list(range(self.COUNT))
        overtaken = int((np.array(numbers) < np.maximum.accumulate(numbers)).sum())
        assert 0.5 * counted.reordered < overtaken <= counted.reordered

    def test_at_a_rate_a_frame_is_overtaken_by_at_most_eight(self) -> None:
        _, numbers = self.fate(EmulationSpec(reorder=0.05, rate_bps=1e9, limit_bytes=10**7))
        overtaken_by = np.arange(self.COUNT) - np.array(numbers)
        assert 1 <= overtaken_by.max() <= 8

    @pytest.mark.parametrize("seed", range(5))
    def test_bursts_leave_reordered_frames_where_they_are(self, seed: int) -> None:
        """Frames of a burst leave early, but those due after a late frame not before it."""

        def numbers(coalesce_s: float) -> list[int]:
            spec = EmulationSpec(reorder=0.3, rate_bps=8e6, limit_bytes=10**7, coalesce_s=coalesce_s)
            link, inner = emulated(spec, seed)
            for number in range(200):
                link.send(numbered(number, 1, 1000), 0.0)
            drain(link)
            return inner.numbers

        assert numbers(0.0) != sorted(numbers(0.0))
        assert numbers(1e-3) == numbers(0.0)

    def test_corruption_flips_one_bit_of_a_copy(self) -> None:
        link, inner = emulated(EmulationSpec(corrupt=0.02))
        frames = numbered(0, self.COUNT, 64)
        before = frames.data.copy()
        link.send(frames, 0.0)
        assert np.array_equal(frames.data, before)
        flipped = [
            int.bit_count(int.from_bytes(sent, "big") ^ int.from_bytes(original, "big"))
            for (_, sent), original in zip(inner.sent, frames, strict=True)
        ]
        assert set(flipped) == {0, 1}
        assert sum(flipped) == link.counted.corrupted
        self.expect(link.counted.corrupted, 0.02)

    def test_flipped_bits_are_spread_over_the_frame(self) -> None:
        link, inner = emulated(EmulationSpec(corrupt=1.0))
        frames = numbered(0, 2000, 60)
        link.send(frames, 0.0)
        differences = [
            int.from_bytes(sent, "big") ^ int.from_bytes(original, "big")
            for (_, sent), original in zip(inner.sent, frames, strict=True)
        ]
        assert len(set(differences)) > 400
        assert {difference.bit_length() > 8 * 48 for difference in differences} == {True, False}

    def test_a_corrupted_frame_travels_as_a_batch_of_its_own(self) -> None:
        link, inner = emulated(EmulationSpec(corrupt=0.1), seed=5)
        frames = numbered(0, 50)
        frames.packet_id = 77
        link.send(frames, 0.0)
        clean = set(frames)
        for batch in inner.batches:
            assert batch.packet_id == 77
            assert len(batch) == 1 or clean.issuperset(batch)
        assert link.counted.corrupted > 0

    def test_a_frame_may_be_both_reordered_and_corrupted(self) -> None:
        link, inner = emulated(EmulationSpec(corrupt=1.0, reorder=1.0))
        link.send(numbered(0, 10), 0.0)
        drain(link)
        assert len(inner.sent) == 10
        assert link.counted == EmulationCounters(sent=10, corrupted=10, reordered=10)

    def test_the_seed_determines_every_decision(self) -> None:
        spec = EmulationSpec(rate_bps=1e9, delay_s=1e-4, jitter_s=1e-5, loss=0.03, duplicate=0.01, reorder=0.05)

        def run(seed: int) -> list[tuple[float, bytes]]:
            link, inner = emulated(spec, seed)
            link.send(numbered(0, 160), 0.0)
            drain(link)
            return inner.sent

        assert run(1) == run(1)
        assert run(1) != run(2)

    @settings(deadline=None)
    @given(
        sizes=st.lists(st.integers(0, 40), max_size=12),
        seed=st.integers(0, 2**32),
        loss=st.sampled_from([0.0, 0.3, 1.0]),
        duplicate=st.sampled_from([0.0, 0.3]),
        reorder=st.sampled_from([0.0, 0.3, 1.0]),
        corrupt=st.sampled_from([0.0, 0.3]),
        rate_bps=st.sampled_from([None, 1e6, 1e10]),
        jitter_s=st.sampled_from([0.0, 1e-3]),
    )
    def test_every_frame_is_counted(
        self,
        sizes: list[int],
        seed: int,
        loss: float,
        duplicate: float,
        reorder: float,
        corrupt: float,
        rate_bps: float | None,
        jitter_s: float,
    ) -> None:
        spec = EmulationSpec(
            loss=loss, duplicate=duplicate, reorder=reorder, corrupt=corrupt, rate_bps=rate_bps, jitter_s=jitter_s
        )
        link, inner = emulated(spec, seed)
        first = 0
        for size in sizes:
            link.send(numbered(first, size, 200), 0.0)
            first += size
        drain(link)
        counted = link.counted
        assert counted.sent + counted.dropped_full == first
        assert len(inner.sent) == counted.sent - counted.lost + counted.duplicated
        times = [time for time, _ in inner.sent]
        assert times == sorted(times)
        assert link.tx_space(1e9) > 0


class TestQueue:
    def test_a_full_queue_drops_its_tail(self) -> None:
        link, inner = emulated(EmulationSpec(rate_bps=8e6, limit_bytes=10_000))
        link.send(numbered(0, 12, 1000), 0.0)
        link.send(numbered(12, 1, 1000), 0.0)
        link.send(numbered(13, 4, 1000), 2e-3)
        drain(link, 2e-3)
        assert inner.numbers == [*range(10), 13, 14]
        assert link.counted == EmulationCounters(sent=12, dropped_full=5)

    def test_without_a_rate_the_limit_is_for_all_frames_in_the_link(self) -> None:
        link, inner = emulated(EmulationSpec(delay_s=1.0, limit_bytes=10_000))
        link.send(numbered(0, 12, 1000), 0.0)
        assert link.tx_space(0.5) == 0
        link.advance(1.0)
        assert len(inner.sent) == 10
        assert link.counted == EmulationCounters(sent=10, dropped_full=2)
        assert link.tx_space(1.0) == 8750

    def test_tx_space_returns_only_when_the_queue_is_half_empty(self) -> None:
        link, _ = emulated(EmulationSpec(rate_bps=8e6, limit_bytes=16_000))
        assert link.tx_space(0.0) == 14_000
        link.send(numbered(0, 13, 1000), 0.0)
        assert link.tx_space(0.0) == 0
        assert link.tx_space(4e-3) == 0
        assert link.tx_space(5e-3) == 6000

    def test_tx_space_below_a_segment_is_reported_as_zero(self) -> None:
        link, _ = emulated(EmulationSpec(rate_bps=8e6, limit_bytes=160_000))
        link.send(numbered(0, 130, 1000), 0.0)
        assert link.tx_space(0.0) == 10_000
        link.send(numbered(130, 1, 1000), 0.0)
        assert link.tx_space(0.0) == 0
        assert link.tx_space(52e-3) == 61_000

    def test_a_blocked_sender_is_woken_when_there_is_space(self) -> None:
        link, _ = emulated(EmulationSpec(rate_bps=8e6, limit_bytes=16_000, delay_s=60.0))
        link.send(numbered(0, 14, 1000), 0.0)
        assert link.next_time() == pytest.approx(60.001)
        assert link.tx_space(0.0) == 0
        wake = link.next_time()
        assert wake == pytest.approx(6e-3)
        assert wake is not None
        link.advance(wake)
        assert link.next_time() == pytest.approx(60.001)
        assert link.tx_space(wake) == 6000

    def test_frames_sent_without_space_postpone_the_wake(self) -> None:
        link, _ = emulated(EmulationSpec(rate_bps=8e6, limit_bytes=16_000, delay_s=60.0))
        link.send(numbered(0, 14, 1000), 0.0)
        assert link.tx_space(0.0) == 0
        link.send(numbered(14, 2, 1000), 0.0)
        assert link.next_time() == pytest.approx(8e-3)
        assert link.counted == EmulationCounters(sent=16)

    def test_tx_space_is_limited_by_the_inner_link(self) -> None:
        link, inner = emulated(EmulationSpec(delay_s=1.0))
        inner.free = 1000
        assert link.tx_space(0.0) == 1000
        inner.free = 0
        assert link.tx_space(0.0) == 0


class TestNesting:
    def test_receive_time_counters_and_close_pass_through(self) -> None:
        link, inner = emulated(EmulationSpec(delay_s=1.0))
        frames = numbered(0, 1)
        inner.incoming = [frames]
        inner.wake = 0.5
        assert link.mtu == 1500
        assert link.receive(0.0) is frames
        assert link.receive(0.0) is None
        assert link.next_time() == 0.5
        link.advance(0.5)
        assert link.next_time() is None
        link.send(frames, 1.0)
        assert link.counters() == {
            "emulated_sent": 1,
            "emulated_dropped_full": 0,
            "emulated_lost": 0,
            "emulated_duplicated": 0,
            "emulated_reordered": 0,
            "emulated_corrupted": 0,
            "link_sent": 0,
        }
        link.close()
        assert inner.closed
        assert link.next_time() is None

    def test_an_emulated_link_within_another_adds_up(self) -> None:
        inner = Recorder()
        near = EmulatedLink(inner, EmulationSpec(delay_s=1.0), seed=1)
        link = EmulatedLink(near, EmulationSpec(delay_s=2.0), seed=2)
        link.send(numbered(0, 1), 0.0)
        drain(link)
        assert [(time, number_of(data)) for time, data in inner.sent] == [(3.0, 0)]
