"""The user's source line behind what is being traced."""

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

import torch

_LOWTIDE = Path(__file__).parent.parent
# Model definitions count as the user's code, also those that lowtide ships.
_MODELS = f"{_LOWTIDE}/models/"
# Below a command of ours there is no code of the user's.
_COMMANDS = f"{_LOWTIDE}/cli/"
_TORCH = str(Path(torch.__file__).parent) + "/"
_PYTHON = sysconfig.get_path("stdlib") + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
_NOT_THE_USERS = (_TORCH, f"{_LOWTIDE}/", "<frozen", "<lowtide", "<eval_with_key")
_CHECKPOINT = _TORCH + "utils/checkpoint.py"


@cache
def _is_the_users(filename: str) -> bool:
    """Neither torch's, nor lowtide's, nor Python's own; other libraries count as the user's."""
    if filename.startswith(_NOT_THE_USERS):
        return filename.startswith(_MODELS)
    return not filename.startswith(_PYTHON) or any(folder in filename for folder in _INSTALLED)


def _frames(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def user_line() -> str:
    """`file:line` of the innermost frame that is neither torch's nor lowtide's; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(_COMMANDS):
        if _is_the_users(frame.f_code.co_filename):
            return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def line_of(error: BaseException) -> str:
    """`file:line` of the user's innermost frame in the traceback of `error`."""
    found, step = "", error.__traceback__
    while step is not None:
        if _is_the_users(step.tb_frame.f_code.co_filename):
            found = f"{short(step.tb_frame.f_code.co_filename)}:{step.tb_lineno}"
        step = step.tb_next
    return found


def inside_checkpoint() -> bool:
    """Is torch.utils.checkpoint on the stack?"""
    return any(frame.f_code.co_filename == _CHECKPOINT for frame in _frames(sys._getframe(1)))


@cache
def short(filename: str) -> str:
    """`file` or `file:line` without the machine's part: relative to the working directory or to installed packages."""
    path = Path(filename)
    for root in (*(parent for parent in path.parents if parent.name == "site-packages"), Path.cwd()):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(path.relative_to(_LOWTIDE.parent)) if path.is_relative_to(_LOWTIDE) else str(path)
