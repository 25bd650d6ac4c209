"""Token buckets."""

from __future__ import annotations

import pytest

from softnic.link.token_bucket import TokenBucket


def test_a_bucket_is_a_rate_with_a_burst() -> None:
    bucket = TokenBucket(1000, 500)
    assert bucket.take(0.0, 500)
    assert not bucket.take(0.0, 1)
    assert bucket.take_some(0.1, 300) == pytest.approx(100)
    assert bucket.take_some(0.1, 300) == 0
    assert bucket.take(10.0, 500)
    assert not bucket.take(10.0, 1)
    assert not bucket.take(5.0, 1)


def test_without_a_burst_that_of_a_second_is_taken_at_once() -> None:
    bucket = TokenBucket(3)
    assert [bucket.take(5.0) for _ in range(4)] == [True, True, True, False]
