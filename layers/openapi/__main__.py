"""``make openapi``: writes the OpenAPI document to where the server and the readers of the documentation find it."""

from pathlib import Path

from layers.openapi.document import text

ROOT = Path(__file__).resolve().parents[2]
SERVED = ROOT / "layers/hourwheel/python/hourwheel/api/openapi.json"
READ = ROOT / "docs/openapi.json"

INDENTS = {SERVED: None, READ: 1}

if __name__ == "__main__":
    for path, indent in INDENTS.items():
        path.write_text(text(indent=indent))
