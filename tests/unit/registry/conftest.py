from tests.unit.conftest import bench

__all__ = ["bench"]
