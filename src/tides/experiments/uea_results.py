"""The contents of a classification run's record."""

from typing import Any

import torch
from torch import Tensor, nn

from tides.kernels.dispatch import last_backend
from tides.nn import SequenceClassifier
from tides.training import FitResult
from tides.training.predictions import ClassPredictions, point_metrics


def where_it_ran(device: str) -> dict[str, str]:
    """Device and backend, for the record."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {"device": name, "backend": last_backend()}


def outcome(finish: FitResult) -> dict[str, Any]:
    """How training went, for the record."""
    return {
        "stopped": finish.stopped,
        "epochs": finish.epochs,
        "best_epoch": finish.best_epoch,
        "validation": {"loss": finish.best.get("val_loss"), "accuracy": finish.best.get("val_accuracy")},
        "train_loss": finish.best.get("train_loss"),
    }


def count(model: nn.Module) -> dict[str, int | None]:
    """Learned numbers; for variants of TIDES also with those that the release keeps and never uses."""
    if isinstance(model, SequenceClassifier):
        known = model.count_parameters(release_equivalent=True)
        return {"parameters": model.count_parameters(), "published_parameters": known}
    return {"parameters": sum(parameter.numel() for parameter in model.parameters()), "published_parameters": None}


def scores(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Metrics of the test cases, with the counts behind the accuracy."""
    predictions = ClassPredictions(logits.double().softmax(-1).numpy(force=True), labels.numpy(force=True))
    correct = int((logits.argmax(-1) == labels).sum())
    return {**point_metrics(predictions), "correct": correct, "cases": len(labels)}
