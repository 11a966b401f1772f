"""stub"""


def policies() -> None:
    """stub"""
