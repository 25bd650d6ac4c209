"""INCEPTIONN's claims."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.experiments.reproduce.claim import Claim, Results, Verdict
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.inceptionn.lossy import TITLES
from softnic.experiments.reproduce.inceptionn.of_times import (
    exchanged,
    of_speed_ups,
    saves,
    shares,
    software,
    software_is_slow,
    speed_ups,
)
from softnic.experiments.reproduce.item import span


def _growth(results: Results) -> str:
    def grows(kind: str) -> str:
        ends = (results.value("inceptionn fig15", kind, "hdc", workers=workers) for workers in (4, 32))
        first, last = ends
        return f"{last / first:.2f}"

    return f"from 4 to 32 workers WA {grows('WA')} times, INC {grows('INC')} (HDC, virtual time)"


def _packets(results: Results) -> str:
    def least(mode: str) -> str:
        saved = results.values("inceptionn packets", "less than WA, exact (%)", exchange="INC", mode=mode)
        return f"{min(saved):.0f} %"

    return f"at least {least('fill')} less than WA when frames are filled, {least('packet')} when packets are shortened"


def _hierarchies(results: Results) -> str:
    def ms(organisation: str) -> float:
        return results.value("inceptionn fig1", "ms", workers=32, organisation=organisation)

    a, b, c = map(ms, ("(a) aggregators", "(b) rings under an aggregator", "(c) rings"))
    return f"32 workers: (a) {a:.2f} ms, (b) {b:.2f} ms, (c) {c:.2f} ms (virtual time)"


_KEPT, _SENT, _GRADIENT_POINTS = (f"{what}: points" for what in ("weights, as kept", "weights, as sent", "gradients"))


def _lost(results: Results, column: str) -> list[float]:
    return [-value for value in results.values("inceptionn fig4", column, dropped="24b-T")]


def _truncated(results: Results) -> str:
    kept, sent, gradients = (
        " and ".join(f"{lost:.1f}" for lost in _lost(results, column)) for column in (_KEPT, _SENT, _GRADIENT_POINTS)
    )
    return (
        f"24 bits dropped, points lost by AlexNet and HDC: {gradients} (gradients), {sent} (weights as sent), {kept} "
        "(weights as kept)"
    )


def _of_truncation(results: Results) -> Verdict:
    kept, gradients = (_lost(results, column) for column in (_KEPT, _GRADIENT_POINTS))
    worse = [weights > other for weights, other in zip(kept, gradients, strict=True)]
    return "confirmed" if all(worse) else "in part" if any(worse) else "refuted"


def _within_one(results: Results) -> Verdict:
    outside = max(results.values("inceptionn fig5", "from 1 on (%)"))
    return "confirmed" if outside == 0 else "in part" if outside < _FEW_PERCENT else "refuted"


def _at_6(results: Results) -> dict[str, float]:
    """Return the points that each network loses with the widest bound."""
    found = {
        title: [-points for points in results.values("inceptionn bounds", "points", model=title, exchange="INC(2^-6)")]
        for title in TITLES.values()
    }
    return {title: lost[0] for title, lost in found.items() if lost}


def _of_bounds(results: Results) -> str:
    lost = ", ".join(f"{title} {points:.2f}" for title, points in _at_6(results).items())
    return f"points lost (less than 0 is a gain): {lost}"


def _few_points(results: Results) -> Verdict:
    few = [lost < 100 * paper.FIG_14_MOST_LOST for lost in _at_6(results).values()]
    return "confirmed" if all(few) else "in part" if any(few) else "not seen"


def _whole_fig_14(results: Results) -> str:
    """Return what HDC alone loses in Fig. 14's longer trainings, if they were made."""
    text = _of_bounds(results)
    if "inceptionn fig14" in results:
        more, deviation = (
            results.value("inceptionn fig14", column, "accuracy", codec="INC(2^-6)") for column in ("points", "±")
        )
        text += f"; longer trainings of HDC {-more:.2f} ± {deviation:.2f}"
    return text


def _bound_kept(results: Results) -> str:
    times = [results.value("inceptionn table3", "times 2^-k", "swept", k=k) for k in paper.BOUNDS]
    return f"up to {', '.join(f'{each:.1f}' for each in times)} times the bound"


def _bound_verdict(results: Results) -> Verdict:
    return "refuted" if max(results.values("inceptionn table3", "times 2^-k", "swept")) > 1 else "confirmed"


def _two_bits(results: Results) -> list[float]:
    return list(results.values("inceptionn table3", "2-bit", bound="2^-10"))


def _many_two_bits(results: Results) -> Verdict:
    return "confirmed" if min(_two_bits(results)) / 100 >= paper.TWO_BITS_AT_10[0] else "in part"


def _ratios(results: Results) -> str:
    at_10, at_6 = (list(results.values("inceptionn table3", "ratio", bound=f"2^-{k}")) for k in (10, 6))
    return f"{span(at_10, '.1f')} at 2^-10, up to {max(at_6):.1f}"


def _of_ratios(results: Results) -> Verdict:
    low = min(results.values("inceptionn table3", "ratio", bound="2^-10"))
    return "confirmed" if low >= paper.FIG_14_RATIO_AT_10[0] else "in part"


_INC_C = "INC+C"


def _epochs_more(results: Results) -> dict[str, float | None]:
    """Return the epochs more than WA that INC+C needs, by model; None where not every seed reaches the accuracy.

    Raises NoResultError.
    """
    found: dict[str, float | None] = {}
    for title in TITLES.values():
        if list(results.values("inceptionn fig13", "points of the target", model=title, exchange=_INC_C)):
            more = list(results.values("inceptionn fig13", "more than WA", model=title, exchange=_INC_C))
            found[title] = more[0] if more else None
    return found


def _epochs(results: Results) -> str:
    parts = []
    for title, more in _epochs_more(results).items():
        if more is None:
            short, deviation = (
                results.value("inceptionn fig13", column, model=title, exchange=_INC_C)
                for column in ("points of the target", "±")
            )
            parts.append(f"{title} not with every seed, at best {short:+.2f} ± {deviation:.2f} points of the target")
        else:
            parts.append(f"{title} {more:+.2f} epochs")
    return "; ".join(parts)


def _few_epochs(results: Results) -> Verdict:
    _, most = paper.FIG_13_EXTRA_EPOCHS
    few = [more is not None and more <= most for more in _epochs_more(results).values()]
    return "confirmed" if all(few) else "in part" if any(few) else "not seen"


_FEW_PERCENT = 0.1
"""Of the gradients, outside -1 and 1."""


CLAIMS: Sequence[Claim] = (
    Claim(
        "Fig. 1",
        "rings instead of the leaves of a hierarchy of aggregators, or of all its levels, take less time",
        "drawn and argued",
        _hierarchies,
        "confirmed",
        "an aggregator's link carries every vector of its group, out and back",
        "#inceptionn-fig1",
    ),
    Claim(
        "Alg. 1, Fig. 6",
        "a ring that sums gradients in p - 1 steps and distributes them in p - 1",
        "algorithm",
        "the same steps, bit for bit the same on every rank",
        "confirmed",
        '`algorithm="ring"`, executed by hosts or NICs',
        "algorithms.md",
    ),
    Claim(
        "Algs. 2, 3, Figs. 8 to 10",
        "a codec of 0, 8, 16 or 32 bits and two bits of tag, in bursts of 256 bits",
        "format and FPGA",
        "the format, in C; FPGA resources and clock rates are out of scope, as softnic is software",
        "confirmed",
        "golden vectors and a scalar reference",
        "codecs.md",
    ),
    Claim(
        "Alg. 2",
        "decompressed values are within the error bound",
        "2^-10, 2^-8, 2^-6",
        _bound_kept,
        _bound_verdict,
        "vectors of 8 bits resolve 2^-7 and are cut, not rounded; `bounded:k` keeps the bound",
        "#what-does-not-hold",
    ),
    Claim(
        "Fig. 11",
        "ToS 0x28 selects packets for compression; `_comp` twins of collectives",
        "in Open MPI and the NIC",
        "the same ToS, and `_comp` on every buffer collective",
        "confirmed",
        "the change takes effect at the exact byte",
        "sockets.md",
    ),
    Claim(
        "Fig. 3",
        "sizes of models; communication takes most of an iteration",
        "233, 2.5, 98, 525 MB; 70 % and more",
        "232.6, 4.4, 97.5, 527.8 MB; shares as in Table II",
        "in part",
        "2.5 MB are two hidden layers of 500, not five; Fig. 3b's bars have no figures in the text",
        "#gradients-and-models",
    ),
    Claim(
        "Fig. 4",
        "accuracy suffers when weights are truncated, and hardly when gradients are",
        "by a chart",
        _truncated,
        _of_truncation,
        "weights kept truncated lose small updates; with A2DTWP's whole copy at an aggregator they lose less",
        "#inceptionn-fig4",
    ),
    Claim(
        "Fig. 5",
        "gradients lie around zero, within -1 and 1, throughout the training",
        "by a chart",
        lambda results: results.finding("inceptionn fig5"),
        _within_one,
        "HDC and a small AlexNet on MNIST",
        "#inceptionn-fig5",
    ),
    Claim(
        "Fig. 7",
        "compression in software makes training slower",
        "2 to 4 times, Snappy and SZ",
        software,
        software_is_slow,
        "one core of today is faster than the paper's, and so is SZ3 than its SZ",
        "#inceptionn-fig7",
    ),
    Claim(
        "Table I",
        "hyperparameters",
        "batch, rate, momentum, decay",
        "the same; the workers' sum is divided by their number",
        "in part",
        "a sum diverges at the rate of 0.1 within 50 steps on MNIST",
        "#gradients-and-models",
    ),
    Claim(
        "Table II",
        "share of communication in a worker-aggregator iteration",
        "76, 80, 80, 71 %",
        shares,
        "in part",
        "two cores compute and 1 Gbit/s links exchange here, GPUs and 10 Gbit/s there",
        "#inceptionn-table2",
    ),
    Claim(
        "Table III",
        "most gradients become two bits at 2^-10",
        "75 to 94 %",
        lambda results: f"{span(_two_bits(results), '.0f')} %",
        _many_two_bits,
        "gradients of 10 to 2,000 steps on MNIST; the paper does not say which iterations it has",
        "#inceptionn-table3",
    ),
    Claim(
        "Fig. 12",
        "INC's exchange takes less time than WA's",
        "36 to 58 %",
        lambda results: exchanged(results, "INC"),
        lambda results: saves(results, "INC"),
        "by bytes alone it would be 81 %, see there",
        "#inceptionn-fig12",
    ),
    Claim(
        "Fig. 12",
        "INC+C's exchange takes less time than WA's",
        "70.9 to 80.7 %",
        lambda results: exchanged(results, "INC+C"),
        lambda results: saves(results, "INC+C"),
        "links of 1 Gbit/s, NICs in fill mode",
        "#inceptionn-fig12",
    ),
    Claim(
        "Fig. 12, section VI",
        "the NIC shortens packets, and keeps their number",
        "as above",
        _packets,
        "confirmed",
        "headers of packets that stay as many cost more, the better the ratio; without hosts' costs both save more",
        "#inceptionn-packets",
    ),
    Claim(
        "abstract",
        "training is faster than with WA",
        "2.2 to 3.1 times",
        speed_ups,
        of_speed_ups,
        "what the exchange saves of an iteration depends on who computes",
        "#inceptionn-fig12",
    ),
    Claim(
        "Fig. 13",
        "INC+C reaches the same accuracy with one or two epochs more",
        "+1 or +2 epochs, 2.2 to 3.1 times as fast",
        _epochs,
        _few_epochs,
        "small networks, few epochs; the error of 2^-7 is larger than most late gradients",
        "#inceptionn-fig13",
    ),
    Claim(
        "Fig. 14a",
        "compression ratios of the codec",
        "5.5 to 11.6 at 2^-10, up to 14.9",
        _ratios,
        _of_ratios,
        "late gradients compress better",
        "#inceptionn-fig14",
    ),
    Claim(
        "Fig. 14b",
        "less than 2 % of accuracy is lost at 2^-6",
        "all four models",
        _whole_fig_14,
        _few_points,
        "smaller networks and shorter trainings; every hop of the ring rounds",
        "#inceptionn-bounds",
    ),
    Claim(
        "Fig. 15",
        "WA's exchange grows linearly with the workers, INC's is almost constant",
        "4 to 8 workers",
        _growth,
        "confirmed",
        "bytes alone: 8 and 1.29 times",
        "#inceptionn-fig15",
    ),
)
