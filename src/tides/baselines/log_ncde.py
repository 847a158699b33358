"""Log-NCDE (Walker et al. 2024, arXiv 2402.18512): the log-ODE method with the vector field's own Lie brackets."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.cde import AddedPenalty, Field, heun
from tides.baselines.classifier import Classifier
from tides.baselines.inputs import Series
from tides.baselines.nrde import NRDEConfig, window_log_signatures
from tides.baselines.path import make_path
from tides.fields import require


@dataclass(frozen=True, kw_only=True)
class LogNCDEConfig(NRDEConfig):
    """Sizes of a Log-NCDE, its windows and the weight of its smoothness penalty."""

    lipschitz: float = 0.0
    """λ: in training, λ Σ_layers mean_rows(‖W_row‖₂) + mean|b| acts on the field's gradients."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, ("lipschitz",), lambda value: value >= 0, "a number ≥ 0")


class LogField(Field):
    """One vector field f_i per channel, f = tanh(W SiLU(… h)), and what a log-signature makes of them:

        Σ_i ℓ_i f_i(h) + Σ_{i<j} ℓ_ij [f_i, f_j](h),   [f, g] = J_g f − J_f g

    With the antisymmetric matrix ℓ and g_j = Σ_i ℓ_ij f_i the second sum is Σ_j J_{f_j} g_j: one tangent per channel,
    carried through the layers beside the values.
    """

    def __init__(self, hidden: int, width: int, depth: int, channels: int, penalty: float) -> None:
        super().__init__(hidden, width, depth, hidden * channels)
        self.channels, self.penalty = channels, penalty

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of every layer, the last one being the output; in training they carry the penalty."""
        layers = [*self.hidden, self.out]
        pairs: list[tuple[Tensor, Tensor]] = [
            (layer.weight, layer.bias) for layer in layers if isinstance(layer, nn.Linear)
        ]
        if not self.training or self.penalty == 0:
            return pairs
        return [(self._penalised(weight), self._penalised(bias)) for weight, bias in pairs]

    def _penalised(self, tensor: Tensor) -> Tensor:
        result: Tensor = AddedPenalty.apply(tensor, self.penalty)  # type: ignore[no-untyped-call]
        return result

    def slope(self, h: Tensor, control: Tensor, weights: list[tuple[Tensor, Tensor]]) -> Tensor:
        """dh/ds (b, hidden) for a log-signature `control` (b, size) of level one or two."""
        (b, n), c = h.shape, self.channels
        *hidden, (out, bias) = weights
        x, derivatives = h, []
        for weight, shift in hidden:
            z = F.linear(x, weight, shift)
            gate = torch.sigmoid(z)
            derivatives.append(gate * (1 + z * (1 - gate)))
            x = z * gate
        fields = torch.tanh(F.linear(x, out, bias)).view(b, c, n)
        slope = (control[:, :c].unsqueeze(1) @ fields).squeeze(1)
        if control.shape[1] == c:
            return slope
        i, j = torch.triu_indices(c, c, offset=1, device=h.device)
        area = control.new_zeros(b, c, c).index_put((torch.arange(b, device=h.device)[:, None], i, j), control[:, c:])
        tangents = (area - area.transpose(1, 2)).transpose(1, 2) @ fields  # (b, c, n): g_j
        for (weight, _), derivative in zip(hidden, derivatives, strict=True):
            tangents = F.linear(tangents, weight) * derivative.unsqueeze(1)
        moved = torch.einsum("cnw,bcw->bcn", out.view(c, n, -1), tangents) * (1 - fields.square())
        return slope + moved.sum(1)


class LogNCDE(Classifier):
    """h(0) = W₀ X(0) + b₀; dh/ds as in `LogField` over windows of the path; logits = W h(end) + b.

    With level 1 it is a neural CDE of piecewise-linear paths. One Heun step per window.
    """

    def __init__(self, config: LogNCDEConfig) -> None:
        super().__init__(config)
        self.settings = config
        h = config.hidden_size
        self.start = nn.Linear(config.width, h)
        self.field = LogField(h, config.field_width, config.field_depth, config.width, config.lipschitz)
        self.head = nn.Linear(h, config.classes)

    def logits(self, series: Series) -> Tensor:
        points, _ = make_path(series, self.settings)
        controls = window_log_signatures(points, self.settings.window, self.settings.level)
        weights = self.field.weights()
        h = heun(
            self.start(points[:, 0]),
            lambda h, control: self.field.slope(h, control, weights),
            ((one, one) for one in controls.unbind(1)),
        )
        answer: Tensor = self.head(h)
        return answer
