"""stub"""


def largest() -> None:
    """stub"""
