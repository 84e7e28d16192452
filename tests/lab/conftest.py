from support.state import state_home

__all__ = ["state_home"]
