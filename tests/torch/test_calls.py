"""Works and futures of process group calls, messages, compression, and errors."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, _make_nccl_premul_sum
from torch.futures import Future

from softnic import codecs
from softnic.torch import work_items
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import Compression
from softnic.torch.reduction import reduction_of
from tests.torch.groups import outcomes, run
from tests.torch.test_collectives import options, own, reducing

Tensor = torch.Tensor


# -- works and futures -----------------------------------------------------------------------------------------------


def interrupt_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt callers that wait for a collective of their own, as Ctrl-C does."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(work_items, "wait_within", interrupted)


def test_a_work_reports_completion_and_a_future_has_its_outputs() -> None:
    def program(group: SoftnicGroup) -> list[Any]:
        tensor = own(group.rank())
        work = group.allreduce([tensor])
        value = work.get_future().wait()
        assert work.wait(timedelta(seconds=20))
        assert work.get_future().done()
        assert value[0] is tensor
        assert work.result()[0] is tensor
        return [work.is_completed(), work.is_success(), work.exception()]

    assert run(2, program) == [[True, True, None]] * 2


def test_calls_may_be_waited_for_in_any_order() -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        tensors = [torch.full((1000,), float(index)) for index in range(8)]
        works = [group.allreduce([tensor]) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        return tensors

    for tensors in run(3, program):
        assert [tensor[-1].item() for tensor in tensors] == [3.0 * index for index in range(8)]


def test_callbacks_of_a_future_may_wait_for_further_calls() -> None:
    """As in PowerSGD's hook."""

    def program(group: SoftnicGroup) -> list[float]:
        def again(future: Future[Any]) -> Any:
            return group.allreduce(future.value()).get_future().wait()

        works = [group.allreduce([torch.full((5,), float(index))]) for index in range(3)]
        for work in works:
            work.wait()
        chained = [work.get_future() for work in works]
        return [future.then(again).then(again).wait()[0][0].item() for future in chained]

    def in_progress(group: SoftnicGroup) -> float:
        def again(future: Future[Any]) -> Any:
            return group.allreduce(future.value()).get_future().wait()

        found: float = group.allreduce([torch.ones(300_000)]).get_future().then(again).wait()[0][0].item()
        return found

    assert run(2, program) == [[0.0, 8.0, 16.0]] * 2
    assert run(2, in_progress) == [4.0, 4.0]


def test_tensors_of_inference_mode_and_of_autograd_are_filled() -> None:
    def program(group: SoftnicGroup) -> list[Any]:
        with torch.inference_mode():
            frozen = torch.ones(3)
            group.allreduce([frozen]).wait()
        weight = torch.nn.Parameter(torch.full((3,), group.rank() + 1.0))
        group.broadcast([weight], options(dist.BroadcastOptions, rootRank=1)).wait()
        return [frozen.tolist(), weight.tolist()]

    assert run(2, program) == [[[2.0] * 3, [2.0] * 3]] * 2


# -- messages --------------------------------------------------------------------------------------------------------


def test_messages_are_matched_by_tag_in_any_order() -> None:
    def program(group: SoftnicGroup) -> list[float]:
        other = 1 - group.rank()
        first, second = torch.zeros(3), torch.zeros(300_000)
        receives = [group.recv([first], other, 1), group.recv([second], other, 2)]
        sends = [group.send([torch.full((300_000,), 2.0)], other, 2)]
        receives[1].wait()
        sends.append(group.send([torch.full((3,), 1.0)], other, 1))
        for work in [*receives, *sends]:
            work.wait()
        return [first[2].item(), second[-1].item()]

    assert run(2, program) == [[1.0, 2.0]] * 2


def test_a_message_from_any_source_reports_its_sender() -> None:
    def program(group: SoftnicGroup) -> Any:
        if group.rank():
            group.send([torch.full((2,), float(group.rank()))], 0).wait()
            return None
        found = {}
        for _ in range(2):
            tensor = torch.zeros(2)
            work = group.recv_anysource([tensor])
            work.wait()
            found[work.source_rank()] = tensor[0].item()
        return found

    assert run(3, program)[0] == {1: 1.0, 2: 2.0}


def test_a_rank_sends_to_itself() -> None:
    def program(group: SoftnicGroup) -> float:
        tensor = torch.zeros(1)
        received, sent = group.recv([tensor], group.rank()), group.send([torch.ones(1)], group.rank())
        received.wait()
        sent.wait()
        return tensor.item()

    assert run(2, program) == [1.0, 1.0]


# -- sparse ----------------------------------------------------------------------------------------------------------


def test_sparse_tensors_are_summed() -> None:
    def part(rank: int) -> Tensor:
        rows = torch.tensor([[0, rank, 3][: rank + 1]])
        return torch.sparse_coo_tensor(rows, torch.full((rank + 1, 2), rank + 1.0), (4, 2), check_invariants=False)

    def program(group: SoftnicGroup) -> Tensor:
        tensor = part(group.rank())
        group.allreduce([tensor]).wait()
        return tensor

    total = torch.stack([part(rank).to_dense() for rank in range(3)]).sum(0)
    for result in run(3, program):
        assert torch.equal(result.to_dense(), total)


# -- compression -----------------------------------------------------------------------------------------------------


def normal(rank: int, count: int = 4096) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank)) * 0.01


def rounded(values: Tensor, codec: str = "bounded:10") -> Tensor:
    return torch.from_numpy(codecs.get(codec).roundtrip(values.numpy()))


def test_sums_and_means_of_floats_are_compressed_and_nothing_else_is() -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        group.compression = Compression("bounded:10", 1000)
        found = []
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            tensor = normal(group.rank())
            group.allreduce([tensor], reducing(op)).wait()
            found.append(tensor)
        part, short, sent = torch.zeros(2048), normal(group.rank(), 100), normal(group.rank())
        group.reduce_scatter_single(part, normal(group.rank())).wait()
        group.allreduce([short]).wait()
        group.broadcast([sent], options(dist.BroadcastOptions, rootRank=1)).wait()
        return [*found, part, short, sent]

    first, second = normal(0), normal(1)
    for rank, (total, mean, most, part, short, sent) in enumerate(run(2, program)):
        assert torch.equal(total, rounded(first + second))
        assert torch.equal(mean, rounded((first + second) / 2))
        assert torch.equal(most, torch.maximum(first, second))
        assert torch.equal(part, rounded(first + second)[rank * 2048 :][:2048])
        assert torch.equal(short, normal(0, 100) + normal(1, 100))
        assert torch.equal(sent, second)


@pytest.mark.parametrize(
    ("count", "dtype", "compressed"),
    [
        (249, torch.float32, False),
        (250, torch.float32, True),
        (499, torch.bfloat16, False),
        (500, torch.bfloat16, True),
        (125, torch.float64, True),
        (999, torch.int32, False),
        (999, torch.complex64, False),
    ],
    ids=str,
)
def test_calls_of_the_floor_and_more_are_compressed(count: int, dtype: torch.dtype, compressed: bool) -> None:
    by = Compression("rht:4", floor_bytes=1000, weights="mx:e4m3")
    for op, sums in ((dist.ReduceOp.SUM, True), (dist.ReduceOp.AVG, True), (dist.ReduceOp.PRODUCT, False)):
        found = by.codec_for(reduction_of(op, dtype, 2), dtype, count)
        assert found == ("rht:4" if compressed and sums else None)
    copied = by.copied_by(dtype, count)
    assert (copied is not None and copied.name == "mx:e4m3") == compressed


def test_halves_are_compressed_as_float32s() -> None:
    def program(group: SoftnicGroup) -> Tensor:
        group.compression = Compression("bounded:8")
        tensor = normal(group.rank()).bfloat16()
        group.allreduce([tensor], reducing(dist.ReduceOp.AVG)).wait()
        return tensor

    exact = (normal(0).bfloat16().float() + normal(1).bfloat16().float()) / 2
    for result in run(2, program):
        assert torch.equal(result, rounded(exact, "bounded:8").bfloat16())


def test_sums_may_choose_their_codec_by_what_they_are() -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        group.compression = Compression("either")
        dense, zeros = normal(group.rank(), 1 << 18), normal(group.rank(), 1 << 18)
        zeros[1000:] = 0
        short, named = (zeros[1:].clone() for _ in range(2))
        works = [group.allreduce([each], reducing(dist.ReduceOp.AVG)) for each in (dense, zeros, short)]
        for work in works:
            work.wait()
        group.compression = Compression("rht:4")
        group.allreduce([named], reducing(dist.ReduceOp.AVG)).wait()
        return [dense, zeros, short, named]

    (dense, zeros, short, named), others = run(2, program)
    assert torch.equal(dense, others[0])
    assert torch.equal(zeros, others[1])
    assert torch.equal(short, named)
    assert not torch.equal(short, zeros[1:])
    assert torch.equal(zeros[:1000], rounded((normal(0, 1 << 18) + normal(1, 1 << 18))[:1000] / 2))
    assert not zeros[1000:].any()
    exact = (normal(0, 1 << 18) + normal(1, 1 << 18)) / 2
    assert 0.005 < ((dense - exact).square().sum() / exact.square().sum()).item() < 0.02


def test_an_unknown_codec_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="gzip"):
        Compression("gzip")


# -- errors ----------------------------------------------------------------------------------------------------------


def test_invalid_arguments_are_an_error_of_this_rank_and_the_group_continues() -> None:
    def program(group: SoftnicGroup) -> float:
        ints, floats = torch.zeros(4, dtype=torch.int64), torch.zeros(4)
        with pytest.raises(ValueError, match=r"AVG is not defined for torch\.bool"):
            group.allreduce([ints.bool()], reducing(dist.ReduceOp.AVG))
        with pytest.raises(ValueError, match=r"PREMUL_SUM is not defined for torch\.int64"):
            group.allreduce([ints], reducing(_make_nccl_premul_sum(0.5)))
        with pytest.raises(ValueError, match="BAND is not defined"):
            group.allreduce([floats], reducing(dist.ReduceOp.BAND))
        with pytest.raises(ValueError, match="MAX is not defined"):
            group.allreduce([floats.to(torch.complex64)], reducing(dist.ReduceOp.MAX))
        with pytest.raises(ValueError, match="float8"):
            group.allreduce([floats.to(torch.float8_e4m3fn)])
        with pytest.raises(TypeError, match=r"tensors of torch\.int64 and torch\.float32"):
            group.allgather([[ints, ints]], [floats])
        with pytest.raises(ValueError, match="3 tensors for 2 ranks"):
            group.allgather([[floats] * 3], [floats])
        with pytest.raises(ValueError, match="6 elements where 2 times 4 are expected"):
            group.all_gather_single(torch.zeros(6), floats)
        with pytest.raises(ValueError, match="split sizes"):
            group.all_to_all_single(floats, floats, [1, 2], [2, 2])
        with pytest.raises(ValueError, match="source 2"):
            group.recv([floats], 2)
        with pytest.raises(ValueError, match="2 tensors where one"):
            group.broadcast([floats, floats], 0)
        with pytest.raises(TypeError, match="sparse"):
            group.broadcast([floats.to_sparse()], 0)
        group.allreduce([floats.fill_(1.0)]).wait()
        return floats[0].item()

    assert run(2, program) == [2.0, 2.0]


def test_mismatched_calls_are_an_error_on_each_rank() -> None:
    def program(group: SoftnicGroup) -> None:
        group.allreduce([torch.zeros(4 + group.rank())]).wait()

    for error in outcomes(2, program):
        assert isinstance(error, dist.DistBackendError)
        assert "all_reduce: " in str(error)
        assert "rank " in str(error)


def test_a_rank_that_leaves_is_an_error_for_calls_that_need_it() -> None:
    def program(group: SoftnicGroup) -> list[str]:
        if group.rank() == 1:
            group.shutdown()
            return []
        found = []
        works = (group.allreduce([torch.zeros(4)]), group.recv([torch.zeros(1)], 1))
        for work in works:
            with pytest.raises(dist.DistBackendError) as caught:
                work.wait()
            found.append(str(caught.value))
        return found

    first, second = outcomes(2, program)[0]
    assert "rank 1" in first
    assert "rank 1" in second


def test_an_aborted_group_names_the_rank_that_aborted_it() -> None:
    """Also while it is idle."""

    def program(group: SoftnicGroup) -> str:
        if group.rank() == 1:
            group.abort()
            return ""
        with pytest.raises(dist.DistBackendError) as caught:
            group.allreduce([torch.zeros(4)]).wait()
        return str(caught.value)

    assert "rank 1 aborted the group" in outcomes(2, program)[0]


def test_ranks_that_do_not_connect_are_an_error_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        dist.init_process_group("softnic", store=HashStore(), rank=0, world_size=2, timeout=timedelta(milliseconds=300))
    assert not dist.is_initialized()


def test_an_error_of_a_future_is_visible_in_c_plus_plus() -> None:
    def program(group: SoftnicGroup) -> str:
        if group.rank() == 1:
            group.abort()
            return ""

        def value(future: Future[Any]) -> Any:
            return future.value()

        chained = group.allreduce([torch.zeros(4)]).get_future().then(value)
        with pytest.raises(RuntimeError) as caught:
            chained.wait()
        return str(caught.value)

    assert "rank 1" in outcomes(2, program)[0]


def test_a_call_that_times_out_ends_the_group() -> None:
    met = threading.Event()

    def program(group: SoftnicGroup) -> str:
        if group.rank() == 1:
            met.wait(60)
            return ""
        with pytest.raises(dist.DistBackendError) as caught:
            group.recv([torch.zeros(1)], 1).wait(timedelta(milliseconds=50))
        met.set()
        return str(caught.value)

    text = outcomes(2, program)[0]
    assert "recv: recv took longer than the timeout of 0.05 s" in text


# -- calls that are waited for at once, as of dist.all_reduce without async_op ----------------------------------------


def waited() -> Any:
    chosen = dist.AllreduceOptions()
    chosen.asyncOp = False
    return chosen


@pytest.mark.parametrize("op", [dist.ReduceOp.AVG, dist.ReduceOp.BOR], ids=str)
def test_results_that_callers_complete_themselves(op: Any) -> None:
    """What is left to do after NICs have combined integers is done in the caller's thread."""

    def program(group: SoftnicGroup) -> Tensor:
        tensor, chosen = torch.tensor([1, 6]) * (group.rank() + 1), waited()
        chosen.reduceOp = op
        group.allreduce([tensor], chosen).wait()
        return tensor

    expected = [1, 9] if op == dist.ReduceOp.AVG else [3, 14]
    assert [found.tolist() for found in run(2, program)] == [expected] * 2


def test_calls_that_are_waited_for_at_once_mix_with_others() -> None:
    def program(group: SoftnicGroup) -> list[float]:
        tensors = [torch.full((50,), float(index)) for index in range(9)]
        for index in range(0, 9, 3):
            group.allreduce([tensors[index]], waited()).wait()
            later = group.allreduce([tensors[index + 1]])
            group.allreduce([tensors[index + 2]], waited()).wait()
            later.wait()
        return [float(tensor[-1]) for tensor in tensors]

    assert run(3, program) == [[3.0 * index for index in range(9)]] * 3


def test_a_call_whose_caller_does_something_else_than_wait_is_completed() -> None:
    def program(group: SoftnicGroup) -> list[float]:
        tensors = [torch.ones(7) for _ in range(3)]
        group.allreduce([tensors[0]], waited()).get_future().wait()
        polled = group.allreduce([tensors[1]], waited())
        while not polled.is_completed():
            time.sleep(0.001)
        group.allreduce([tensors[2]], waited())  # nobody waits: completed before the group ends
        group.shutdown()
        return [float(tensor[-1]) for tensor in tensors]

    assert run(2, program) == [[2.0] * 3] * 2


def test_a_message_of_another_thread_is_sent_while_a_caller_waits() -> None:
    def program(group: SoftnicGroup) -> float:
        tensor, message = torch.ones(5), torch.full((3,), 7.0)
        if group.rank() == 1:
            group.recv([message.zero_()], 0).wait()
            group.allreduce([tensor], waited()).wait()
            return float(message[0] + tensor[0])
        work = group.allreduce([tensor], waited())
        waiter = threading.Thread(target=work.wait)
        waiter.start()
        group.send([message], 1).wait()
        waiter.join(60)
        return float(message[0] + tensor[0])

    assert run(2, program) == [9.0, 9.0]


@pytest.mark.parametrize("how", ["interrupted", "aborted", "left", "late"])
def test_a_wait_that_ends_without_a_result(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Event()

    def program(group: SoftnicGroup) -> str:
        tensor = torch.ones(4)
        if group.rank() == 1:
            if how == "aborted":
                group.abort()
            elif how == "left":
                group.shutdown()
            else:
                met.wait(60)
                if how == "interrupted":
                    group.allreduce([tensor]).wait()
            return ""
        work = group.allreduce([tensor], waited())
        if how == "interrupted":
            with monkeypatch.context() as patch:
                interrupt_waits(patch)
                with pytest.raises(KeyboardInterrupt):
                    work.wait()
            met.set()
            work.wait()
            return f"{tensor[0]:g}"
        with pytest.raises(dist.DistBackendError) as caught:
            work.wait(timedelta(seconds=0.05 if how == "late" else 30))
        met.set()
        return str(caught.value)

    expected = {"interrupted": "2", "aborted": "rank 1 aborted", "left": "rank 1", "late": "timeout of 0.05 s"}
    assert expected[how] in outcomes(2, program)[0]
