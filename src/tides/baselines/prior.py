"""The class prior: what a classifier knows that has not looked at the series. Every table's floor."""

import torch
from torch import Tensor, nn

from tides.baselines.classifier import Classifier
from tides.baselines.config import ClassificationConfig
from tides.baselines.inputs import Series

__all__ = ["ClassPrior", "ClassificationConfig"]


class ClassPrior(Classifier):
    """The same logits for every series; their best values are the logarithms of the classes' frequencies.

    `fit` sets them at once; training with cross-entropy arrives there too.
    """

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__(config)
        self.prior = nn.Parameter(torch.zeros(config.classes))

    @torch.no_grad()
    def fit(self, labels: Tensor) -> "ClassPrior":
        """Frequencies of these labels (n,), with one imaginary series of every class so that none is impossible."""
        counts = torch.bincount(labels, minlength=self.classes).to(self.prior) + 1
        self.prior.copy_((counts / counts.sum()).log())
        return self

    def logits(self, series: Series) -> Tensor:
        return self.prior.expand(len(series.gaps), -1)
