"""``make openapi``: writes the OpenAPI document, and the tables of settings in docs/api/."""

from pathlib import Path

from layers.openapi.document import text
from layers.openapi.tables import write_tables

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "layers/hourwheel/python/hourwheel/api/openapi.json"

if __name__ == "__main__":
    DOCUMENT.write_text(text())
    write_tables(ROOT / "docs/api")
