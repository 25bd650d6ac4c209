"""Learned gradient compression: an autoencoder is trained on selected gradients early in training, and compresses them
from then on.

Abrahamyan, Chen, Bekoulis, Deligiannis: Learned Gradient Compression for Distributed Deep Learning (2021). Two methods:
`LgcRing` ("lgc-ring") and `LgcServer` ("lgc-ps"), for ring all-reduce and for a parameter server. torch is needed from
the second phase on.

Reading order: selection, autoencoder, phases, then ring or server. Each states its deviations from the paper.
"""
