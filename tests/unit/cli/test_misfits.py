"""A value that an option does not take is refused in a sentence that names the option and what it takes."""

import pytest

from tests.unit.cli.conftest import Shell

MESSAGES = "--messages-per-day"
RANGE = "must be a whole number from 0 to 1,000,000,000,000"


@pytest.mark.parametrize(
    ("line", "option", "sentence"),
    [
        (f"cost {MESSAGES} 1e30", MESSAGES, RANGE),
        (f"cost {MESSAGES} nan", MESSAGES, RANGE),
        (f"cost {MESSAGES}=-5", MESSAGES, RANGE),
        ("group seek orders billing --to middle", "--to", "must be one of start, end"),
        ("consume orders billing --then explode", "--then", "must be one of ack, retry, reject"),
        ("consume orders billing --max none", "--max", "must be a whole number of at least 1"),
        ("--sign never lag orders billing", "--sign", "must be aws"),
    ],
)
def test_the_sentence_names_the_option_and_its_values(shell: Shell, line: str, option: str, sentence: str) -> None:
    result = shell(*line.split())
    told = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in told
    assert f": {sentence}" in told
    assert "Input should" not in told
    assert "Value error" not in told
