"""LGC's autoencoders: an encoder and decoders of one-dimensional convolutions (section IV, Tables I and II).

A vector of selected gradients, brought to a root mean square of 1 in each layer and filled up with zeros to a multiple
of 16, becomes a code of a quarter as many float32: 4 channels of a 16th of the length. A decoder makes the vector
again.

Where the paper leaves something open, or cannot be followed:
- Table I divides a length by 2^4 and Table II multiplies by 2^5, so what comes out would be twice as long as what went
  in. Here deconv1 has stride 1, as conv5, whose mirror image it is.
- Padding: one on either side of kernels of 3, so that strides of 2 halve and double lengths exactly.
- "conv" has one filter that sees the 32 channels of deconv5 and, with innovation, the innovation as a 33rd. It is
  linear, as is conv5; all others are followed by a leaky ReLU.
- Losses are means over a vector's elements where the paper has sums, so that the rate does not depend on its length.
- The paper trains by SGD with a rate of 0.001. From PyTorch's first weights that leaves the decoder where it begins: at
  zeros, for hundreds of steps and at rates a hundred times as high. Here it is Adam (Kingma and Ba, 2015).

torch is imported when an autoencoder is made. Weights travel as bytes: float32, little-endian, in the order of the
layers, weight before bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import nn

Floats = npt.NDArray[np.float32]

SHRINKS = 16
"""Places of a vector that become one place of the code."""
CHANNELS = 4
"""Numbers in a place of the code."""
ENCODER = ((64, 3, 2), (128, 3, 2), (256, 3, 2), (64, 3, 2), (CHANNELS, 1, 1))
"""Table I: filters, kernel, stride."""
DECODER = ((4, 3, 1), (32, 3, 2), (64, 3, 2), (128, 3, 2), (32, 3, 2))
"""Table II without its last row; the first stride is 2 there."""
_SLOPE = 0.01
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
RATE = 0.002
"""Of Adam, found by trying 0.001 and 0.003 on selected gradients of a ConvNet: both work."""


def padded(length: int) -> int:
    """The next multiple of SHRINKS, and at least one."""
    return max(1, -(-length // SHRINKS)) * SHRINKS


def code_words(length: int) -> int:
    """float32 in the code of a vector of `length`."""
    return padded(length) // SHRINKS * CHANNELS


class Autoencoder:
    """One encoder and `decoders` decoders; all vectors are float32 of any length, the same for all in a call.

    Decoders with `innovation` get a second vector beside the code: the largest elements, and zeros elsewhere.
    """

    def __init__(self, decoders: int = 1, *, innovation: bool, seed: int, rate: float = RATE) -> None:
        import torch

        self._encoder = _encoder()
        self._decoders = [_decoder(innovation) for _ in range(decoders)]
        self._innovation = innovation
        _begin([layer for part in self._parts() for layer in part], seed)
        self._optimizer = torch.optim.Adam(self._parameters(), lr=rate)

    def encode(self, vector: Floats) -> Floats:
        """The code of a vector, `code_words` of them."""
        import torch

        with torch.no_grad():
            code: torch.Tensor = self._encoder(_tensor(vector))
        return code.numpy().reshape(-1)

    def decode(self, code: Floats, length: int, innovation: Floats | None = None, decoder: int = 0) -> Floats:
        """The vector of `length` that a decoder makes of a code and, where it takes one, an innovation of `length`."""
        import torch

        with torch.no_grad():
            indices = torch.from_numpy(code).reshape(1, CHANNELS, -1)
            made = self._decoded(decoder, indices, None if innovation is None else _tensor(innovation))
        return np.ascontiguousarray(made.numpy().reshape(-1)[:length])

    def learn_aggregate(self, vectors: Sequence[Floats]) -> float:
        """One step of training for ring all-reduce: from the mean code to the mean vector (equation 11).

        Returns the reconstruction loss: the mean square of what is missing.
        """
        import torch

        inputs = torch.cat([_tensor(vector) for vector in vectors])
        with torch.enable_grad():
            made = self._decoded(0, self._encoder(inputs).mean(dim=0, keepdim=True), None)
            loss = (made - inputs.mean(dim=0, keepdim=True)).square().mean()
            self._step(loss)
        return float(loss.item())

    def learn_decoupled(
        self, vectors: Sequence[Floats], innovations: Sequence[Floats], chosen: int, similarity: float
    ) -> tuple[float, float]:
        """One step of training for a parameter server: each decoder makes its node's vector of the code of node
        `chosen` and its own innovation, and all codes are to be alike (equations 5 to 7, lambda_1 = 1, lambda_2 =
        `similarity`).

        Returns the reconstruction loss and the similarity loss, each a mean over elements and nodes or pairs of them.
        """
        import torch

        inputs = torch.cat([_tensor(vector) for vector in vectors])
        with torch.enable_grad():
            codes = self._encoder(inputs)
            common = codes[chosen : chosen + 1]
            made = torch.cat([self._decoded(k, common, _tensor(given)) for k, given in enumerate(innovations)])
            reconstruction = (made - inputs).square().mean()
            pairs = max(1, len(vectors) * (len(vectors) - 1))
            unlike = (codes[:, None] - codes[None, :]).square().mean(dim=(2, 3)).sum() / pairs
            self._step(reconstruction + similarity * unlike)
        return float(reconstruction.item()), float(unlike.item())

    def weights(self, *, encoder_only: bool = False) -> bytes:
        """The encoder's weights, then each decoder's, as they travel."""
        return _pack([self._encoder] if encoder_only else self._parts())

    def load(self, data: bytes, *, encoder_only: bool = False) -> None:
        """Takes what `weights` of an autoencoder of the same kind gave. Raises ValueError."""
        _unpack([self._encoder] if encoder_only else self._parts(), data)

    def state_dict(self) -> dict[str, Any]:
        """Weights and what Adam keeps, as numpy arrays: training goes on from there."""
        kept = [self._optimizer.state.get(parameter, {}) for parameter in self._parameters()]
        moments = [[each[key].numpy().copy() for key in _MOMENTS] for each in kept if each]
        weights = np.frombuffer(self.weights(), np.uint8).copy()
        return {"decoders": len(self._decoders), "weights": weights, "moments": moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` of an autoencoder of the same kind gave. Raises ValueError."""
        import torch

        self.load(bytes(state["weights"]))
        self._optimizer.state.clear()
        for parameter, moments in zip(self._parameters(), state["moments"], strict=False):
            self._optimizer.state[parameter] = {
                key: torch.from_numpy(np.array(array)) for key, array in zip(_MOMENTS, moments, strict=True)
            }

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for part in self._parts() for parameter in part.parameters()]

    def _parts(self) -> list[nn.Sequential]:
        return [self._encoder, *(layer for decoder in self._decoders for layer in decoder)]

    def _decoded(self, decoder: int, indices: torch.Tensor, innovation: torch.Tensor | None) -> torch.Tensor:
        import torch

        rises, last = self._decoders[decoder]
        channels = rises(indices)
        if (innovation is not None) != self._innovation:
            raise ValueError("an innovation goes with decoders that take one, and only with them")
        if innovation is not None:
            channels = torch.cat([channels, innovation], dim=1)
        made: torch.Tensor = last(channels)
        return made

    def _step(self, loss: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def _encoder() -> nn.Sequential:
    from torch import nn

    layers: list[nn.Module] = []
    before = 1
    for filters, kernel, stride in ENCODER:
        falls = _bare(nn.Conv1d, before, filters, kernel, stride, padding=kernel // 2)
        layers += [falls, nn.LeakyReLU(_SLOPE)]
        before = filters
    return nn.Sequential(*layers[:-1])


def _decoder(innovation: bool) -> tuple[nn.Sequential, nn.Sequential]:
    """What rises to the vector's length, and the last convolution."""
    from torch import nn

    layers: list[nn.Module] = []
    before = CHANNELS
    for filters, kernel, stride in DECODER:
        beyond = {"padding": kernel // 2, "output_padding": stride - 1}
        layers += [
            _bare(nn.ConvTranspose1d, before, filters, kernel, stride, **beyond),
            nn.LeakyReLU(_SLOPE),
        ]
        before = filters
    return nn.Sequential(*layers), nn.Sequential(_bare(nn.Conv1d, before + innovation, 1, 1))


def _bare(kind: type[nn.Module], *shape: int, **others: int) -> nn.Module:
    """A layer without weights as yet."""
    from torch.nn.utils import skip_init

    layer: nn.Module = skip_init(kind, *shape, **others)  # type: ignore[no-untyped-call]
    return layer


def _begin(layers: Sequence[nn.Module], seed: int) -> None:
    """First weights as PyTorch has them, uniform to within 1 / sqrt(inputs), but of a generator that nobody shares:
    ranks may be threads, and a program's own random numbers are not touched."""
    import torch

    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer, torch.nn.Conv1d | torch.nn.ConvTranspose1d):
                bound = float(layer.weight[0].numel()) ** -0.5
                for parameter in layer.parameters():
                    drawn = rng.uniform(-bound, bound, tuple(parameter.shape)).astype(np.float32)
                    parameter.copy_(torch.from_numpy(drawn))


def _tensor(vector: Floats) -> torch.Tensor:
    """(1, 1, padded length)."""
    import torch

    filled = np.zeros(padded(vector.size), np.float32)
    filled[: vector.size] = vector
    return torch.from_numpy(filled).reshape(1, 1, -1)


def _pack(parts: Sequence[nn.Sequential]) -> bytes:
    return b"".join(
        parameter.detach().numpy().astype("<f4").tobytes() for part in parts for parameter in part.parameters()
    )


def _unpack(parts: Sequence[nn.Sequential], data: bytes) -> None:
    import torch

    parameters = [parameter for part in parts for parameter in part.parameters()]
    words = np.frombuffer(data, "<f4") if len(data) % 4 == 0 else np.empty(0, "<f4")
    if words.size != sum(parameter.numel() for parameter in parameters):
        raise ValueError(f"{len(data)} bytes are not the weights of this autoencoder")
    start = 0
    with torch.no_grad():
        for parameter in parameters:
            part = words[start : start + parameter.numel()].astype(np.float32)
            parameter.copy_(torch.from_numpy(part).reshape(parameter.shape))
            start += parameter.numel()
