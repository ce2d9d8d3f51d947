from tests.unit.archive.conftest import archive, bench

__all__ = ["archive", "bench"]
