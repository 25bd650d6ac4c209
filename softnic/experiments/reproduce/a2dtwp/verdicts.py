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
        "abstract",
        "time saved on average",
        "6.18 % (x86), 11.91 % (POWER)",
        "the paper's own rows average 6.17 and 13.66 %",
        "refuted",
        "the average of the nine gains in the text",
        _WRONG,
    ),
)
