"""Two processes, each with a copy of the model: `torchrun --nproc_per_node 2 examples/ddp.py`."""

import sys

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy

import lowtide

distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*blocks, nn.Linear(64, 10)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

torch.manual_seed(1 + rank)  # every rank has its own data
batches = [(torch.randn(512, 64), torch.randint(10, (512,))) for _ in range(4)]
step = lowtide.train_step(model, optimizer, batches[0], lambda m, b: cross_entropy(m(b[0]), b[1]), budget="70%")
losses = [float(step(batch)) for batch in batches]
sys.stdout.write(f"rank {rank}: {step.measured_peak} of {step.plan.budget} bytes, losses {losses}\n")
distributed.destroy_process_group()
