"""What to train: the reference models with random weights and synthetic batches, or a function of the user's."""

from lowtide.models.build import build as build
from lowtide.models.optimizers import OPTIMIZERS as OPTIMIZERS
from lowtide.models.optimizers import make_optimizer as make_optimizer
from lowtide.models.training import ModelOptions as ModelOptions
from lowtide.models.training import Training as Training
