"""A2DTWP's claims."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.experiments.reproduce.claim import Claim

_WRONG = "#what-does-not-hold"

CLAIMS: Sequence[Claim] = (
    Claim(
        "Algs. 1 to 4, Fig. 1",
        "weights' precision grows during training (AWP); Bitpack removes bytes",
        "method",
        "`softnic.gradients.awp` and the codec `truncate`, in C with threads, AVX2, AVX-512 and NEON",
        "confirmed",
        "",
        "gradients.md",
    ),
    Claim(
        "Alg. 5",
        "GPUs unpack in CUDA kernels, POWER packs with AltiVec",
        "CUDA, AltiVec",
        "out of scope: the NIC or the CPU unpacks, in portable C where it has no SIMD of its own",
        "out of scope",
        "",
        "codecs.md",
    ),
    Claim(
        "Table I",
        "networks, their weights and biases",
        "AlexNet, VGG, ResNet",
        lambda results: results.finding("a2dtwp table1"),
        "confirmed",
        "an eighth of the channels for 28 x 28 images here",
        "#a2dtwp-table1",
    ),
    Claim(
        "Tables II, III",
        "weights take less time to move to the devices",
        "2.94 and 3.20 times less",
        lambda results: results.finding("a2dtwp table2"),
        "in part",
        "one core computes, links of 1 Gbit/s",
        "#a2dtwps",
    ),
    Claim(
        "Figs. 3, 4",
        "a training reaches the same error sooner",
        "6.18 % (x86), 11.91 % (POWER) on average",
        lambda results: results.finding("a2dtwp fig4"),
        "in part",
        "other networks, data and machine",
        "#a2dtwps",
    ),
    Claim(
        "Fig. 5",
        "a whole training takes less time at about the same error",
        "errors +1.93 and +0.71 points",
        lambda results: results.finding("a2dtwp fig5"),
        "in part",
        "other networks, data and machine",
        "#a2dtwps",
    ),
    Claim(
        "abstract",
        "time saved on average",
        "6.18 % (x86), 11.91 % (POWER)",
        "the paper's own rows average 6.17 and 13.66 %",
        "refuted",
        "the average of the nine gains in the text",
        _WRONG,
    ),
)
