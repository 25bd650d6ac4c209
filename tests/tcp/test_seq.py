"""Positions and sequence numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from softnic.tcp import seq

numbers = st.integers(0, 2**32 - 1)


@given(numbers, st.integers(0, 2**40), st.integers(-(2**31), 2**31 - 1))
def test_a_position_is_restored_from_its_number(initial: int, near: int, distance: int) -> None:
    position = near + distance
    assert seq.position(initial, seq.number(initial, position), near) == position


def test_numbers_wrap() -> None:
    assert seq.number(0xFFFFFFFF, 1) == 0
    assert seq.position(0xFFFFFFFF, 0, 0) == 1
    assert seq.position(5, 4, 0) == -1


@given(numbers, st.integers(1, 2**31 - 1))
def test_a_number_is_later_within_half_the_space(number: int, step: int) -> None:
    later = (number + step) & 0xFFFFFFFF
    assert seq.after(later, number)
    assert not seq.after(number, later)
    assert not seq.after(number, number)
    assert seq.elapsed(later, number) == step
