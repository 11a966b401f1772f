"""Training inside a byte budget: `train_step` and what it is made of."""

from lowtide.training.train_step import TrainStep as TrainStep
from lowtide.training.train_step import train_step as train_step
