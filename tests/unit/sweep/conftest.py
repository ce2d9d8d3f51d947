from tests.unit.queueing.conftest import bench

__all__ = ["bench"]
