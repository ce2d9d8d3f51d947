"""Runs dynalite: an engine that reports consumed capacity as DynamoDB does."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
"""Credentials of no account, so that no run can reach a real one."""

# In memory, on a free port. It ends with its standard input, so also when this process is killed.
_SERVE = """
const server = require('dynalite')({createTableMs: 0});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.resume().on('end', () => process.exit());
"""


@contextmanager
def dynalite() -> Iterator[str]:
    """Starts the engine and yields its URL."""
    try:
        process = subprocess.Popen(
            ["node", "--eval", _SERVE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    except FileNotFoundError as error:
        raise RuntimeError("dynalite needs Node.js, and there is no node on the path: install Node.js 20") from error
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("dynalite did not start: run npm ci (make cost does), and see the lines above")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
