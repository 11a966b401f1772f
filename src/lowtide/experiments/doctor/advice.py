"""What it means where a check of the doctor fails, and what to do: a sentence of each."""

_REPORT = "Please open an issue with this report"
_NO_BUDGET = f"A budget cannot be trusted here. {_REPORT}; until then train without one"
_WRONG = f"Do not train with lowtide on this device. {_REPORT}"

ADVICE = {
    "eager repeats itself": (
        "PyTorch itself gives other bits for the same step here, so no check below that compares bits says anything of "
        "lowtide. Set torch.backends.cudnn.benchmark = False and torch.backends.cudnn.deterministic = True, and run "
        "this again"
    ),
    "allocator's counter": (
        "The bytes that tensors take are counted wrong, so no peak can be predicted or held. Is another thread or "
        "library allocating in this process, or is PYTORCH_CUDA_ALLOC_CONF set? Run it without; if it still fails, "
        "train without a budget and open an issue with this report"
    ),
    "all gradients as in eager": f"The captured step computes something else than your model. {_WRONG}",
    "convolutions, AdamW": "",
    "convolutions, SGD foreach": "",
    "transformer, Adam fused": "",
    "bfloat16 autocast": "",
    "accumulation and clipping": "",
    "random numbers replayed": (
        "Dropout that is computed again in backward draws other numbers than in forward, so gradients would be wrong. "
        f"{_WRONG}, or only with models that draw nothing"
    ),
    "swap space": (
        'Values that leave the device come back damaged, or there is no room for them. Train with swap="off", which '
        "is the default; where the error speaks of room, free host memory, or raise the limit on locked memory "
        "(ulimit -l)"
    ),
    "a step whose activations leave": (
        'Swapping inside of a step is wrong, or it frees no memory. Train with swap="off", which is the default, and '
        "open an issue with this report"
    ),
    "training that swaps": (
        'Planned training with swaps is wrong, or over its budget. Train with swap="off", which is the default, and '
        "open an issue with this report"
    ),
}
"""By the name of the check. Those of training are told by how it failed."""

_BY_ERROR = (
    (
        "out of memory",
        "The device had no room for a step of a few MiB: another process holds it. See nvidia-smi, end that process or "
        "choose another device with --device",
    ),
    (
        "no kernel image",
        "This build of torch has no kernels for this card. Install one that has: pytorch.org tells which builds know "
        "which cards",
    ),
    (
        "driver",
        "The NVIDIA driver is too old or too new for this build of torch. Update it, or install a torch built for an "
        "older CUDA",
    ),
    (
        "CUDA error",
        "CUDA keeps such an error for the rest of the process, so what comes after the first one says nothing. Look at "
        "the first alone, and run this again with CUDA_LAUNCH_BLOCKING=1, which names the call that failed",
    ),
    ("cuDNN", f"cuDNN refused. Does the model train eagerly here? If so: {_REPORT}"),
    ("differ from eager", f"Training is not the same as in eager. {_WRONG}"),
    ("the budget is", f"A planned step takes more than its budget. {_NO_BUDGET}"),
    ("predicted were", f"Peaks are predicted wrong. {_NO_BUDGET}"),
    ("peak was measured", f"Nothing measures peaks here. {_NO_BUDGET}"),
    (
        "BudgetInfeasible",
        "No plan was found for a small model. Is something else using the device while this runs? Run it alone; if it "
        "still fails, open an issue with this report",
    ),
)
"""By what the error says, the first that is found; these come before the advice of the check."""
_OTHERWISE = f"lowtide cannot do this here. {_REPORT}"


def advice(name: str, said: str) -> str:
    """What to do about the check `name`, which failed with the error `said`; for a fact that nobody could tell, too."""
    line = said.partition("\n")[0]
    general = next((text for words, text in _BY_ERROR[:4] if words in line), None)
    found = general or ADVICE.get(name) or next((text for words, text in _BY_ERROR if words in line), _OTHERWISE)
    return f"{found}."
