"""stub"""


def predictions() -> None:
    """stub"""
