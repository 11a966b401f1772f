"""Lightning inside a budget: one callback, which compiles `training_step` while fit runs."""

import sys

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from lowtide.integrations.lightning import LowtideCallback


class Classifier(pl.LightningModule):
    """A small convolutional network with random weights."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 16), (16, 16), (16, 16), (16, 16)]
        blocks = [nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in sizes]
        self.net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))
        self.losses: list[float] = []

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """The loss of one batch."""
        inputs, labels = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def on_train_batch_end(self, outputs: dict[str, Tensor], batch: object, index: int) -> None:
        """Keep the losses."""
        self.losses.append(outputs["loss"].item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def train(budget: int | str | None, steps: int = 6) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    model = Classifier()
    data = [(torch.randn(3, 32, 32), torch.tensor(k % 10)) for k in range(16 * steps)]
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[] if budget is None else [LowtideCallback(budget=budget)],
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16))
    return model.losses


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('8MiB')}\n")
