"""GraFITi: observations and questions as edges of a bipartite graph between channels and times."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tides.baselines.attention import masked_softmax
from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GraFITiConfig(ForecastConfig):
    """Published settings for Physiome-ODE."""

    hidden_size: int = 128
    depth: int = 2
    heads: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "depth", "heads")
        if self.hidden_size % self.heads:
            raise ConfigError(f"heads: found {self.heads}, wanted a divisor of hidden_size = {self.hidden_size}")


class EdgeAttention(nn.Module):
    """Every node attends to its edges: O = Q + softmax(Q Kᵀ/√d) V, then O + ReLU(W O).

    Key and value of the edge from node n to node m are linear in [h_m, u_nm]: one map of the neighbour, one of the
    edge, added. A node without edges keeps Q.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.mix = nn.Linear(width, width), nn.Linear(width, width)
        self.from_node, self.from_edge = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width, bias=False)

    def forward(self, nodes: Tensor, neighbours: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Nodes (b, n, d) after looking at neighbours (b, m, d) along edges (b, n, m, d) where `mask` (b, n, m)."""
        d = nodes.shape[-1]
        query = self.query(nodes)
        both = self.from_node(neighbours).unsqueeze(1) + self.from_edge(edges)
        keys, values = both.unflatten(-1, (2, self.heads, d // self.heads)).unbind(-3)  # (b, n, m, heads, ·)
        scores = torch.einsum("bnhe,bnmhe->bnmh", query.unflatten(-1, (self.heads, -1)), keys) / math.sqrt(d)
        weights = masked_softmax(scores, mask.unsqueeze(-1), dim=2)
        out = query + torch.einsum("bnmh,bnmhe->bnhe", weights, values).flatten(2)
        result: Tensor = out + self.mix(out).relu()
        return result


class GraphLayer(nn.Module):
    """Channels from times and edges, times from channels and edges, edges from both ends; all read the old values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.channels, self.times = EdgeAttention(width, heads), EdgeAttention(width, heads)
        self.own = nn.Linear(width, width)
        self.time, self.channel = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, times: Tensor, channels: Tensor, edges: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = edges + self.own(edges) + self.time(times).unsqueeze(2) + self.channel(channels).unsqueeze(1)
        return (
            self.times(times, channels, edges, mask),
            self.channels(channels, times, edges.transpose(1, 2), mask.transpose(1, 2)),
            new.relu(),
        )


class GraFITi(ForecastModel):
    """A graph of l + q times and c channels; an edge is an observed or a queried entry (time, channel).

        u_ic = ReLU W [x_ic or 0, queried],   t_i = sin(W t),   h_c = ReLU W onehot(c)
        per layer:  h_c ← attention over its times,  t_i ← attention over its channels,
                    u_ic ← ReLU(u_ic + W [u_ic, t_i, h_c])
        ŷ_ic = wᵀ [u_ic, t_i, h_c] + w₀

    All l + q by c entries are computed and masked, which is exact and has one shape for every batch. Queries are
    part of the graph, so which times are asked together matters, as published. Every channel is asked for at every
    query time, where the published runs put only the entries that are scored into the graph. The layers are those of
    the Physiome-ODE benchmark; in the authors' own release channels also attend to each other. Source: Yalavarthi et
    al., "GraFITi: Graphs for Forecasting Irregularly Sampled Time Series", AAAI 2024 (arXiv 2305.12932).
    """

    config: GraFITiConfig

    def __init__(self, config: GraFITiConfig) -> None:
        super().__init__(config)
        d = config.hidden_size
        self.edge, self.time = nn.Linear(2, d), nn.Linear(1, d)
        # A linear map of one-hot vectors: row c of the weight and a common bias.
        self.channel = nn.Linear(self.channels, d)
        self.layers = nn.ModuleList(GraphLayer(d, config.heads) for _ in range(config.depth))
        self.from_edge, self.from_time, self.from_channel = (nn.Linear(d, 1, bias=i == 0) for i in range(3))

    def answer(self, question: Question) -> Tensor:
        return self.graph(question, question.query_times, question.query_valid)

    def graph(self, question: Question, query_times: Tensor, asked: Tensor) -> Tensor:
        """Answers (b, q, c) of the graph with queries at `query_times` (b, q), where `asked`."""
        values, seen = question.values, question.observed
        b, l, c = values.shape
        q = query_times.shape[1]
        queried = asked.unsqueeze(-1).expand(b, q, c)
        entries = torch.cat([values, values.new_zeros(b, q, c)], dim=1)
        flags = torch.cat([torch.zeros_like(values), queried.to(values.dtype)], dim=1)
        mask = torch.cat([seen, queried], dim=1)  # (b, l + q, c)

        moments = torch.cat([question.times, query_times], dim=1).to(values.dtype).unsqueeze(-1)
        times = self.time(moments).sin()
        channels = (self.channel.weight.mT + self.channel.bias).relu().expand(b, c, -1)
        edges = self.edge(torch.stack([entries, flags], dim=-1)).relu()
        for layer in self.layers:
            times, channels, edges = layer(times, channels, edges, mask)

        ends = self.from_time(times[:, l:]) + self.from_channel(channels).mT  # (b, q, c)
        result: Tensor = self.from_edge(edges[:, l:]).squeeze(-1) + ends
        return result


class GraFITiC(GraFITi):
    """GraFITi with a single query per channel, at the last time asked; its answer holds for all query times.

    The constant forecaster of the Physiome-ODE benchmark (Klötergens et al., ICLR 2025).
    """

    def answer(self, question: Question) -> Tensor:
        last = question.query_times.masked_fill(~question.query_valid, -torch.inf).amax(1, keepdim=True)
        asked = question.query_valid.any(dim=1, keepdim=True)
        constant = self.graph(question, last.masked_fill(~asked, 0), asked)
        return constant.expand(-1, question.query_times.shape[1], -1)
