"""``make openapi``: writes the OpenAPI document for the server and for the readers of the documentation."""

from pathlib import Path

from layers.openapi.document import text

ROOT = Path(__file__).resolve().parents[2]
SERVED = ROOT / "layers/hourwheel/python/hourwheel/api/openapi.json"
READ = ROOT / "docs/openapi.json"

INDENTS = {SERVED: None, READ: 1}

if __name__ == "__main__":
    for path, indent in INDENTS.items():
        path.write_text(text(indent=indent))
