"""The quick scenarios hold their bounds, and the model repeats itself."""

import pytest

from hourwheel.aws.bill.counts import read_counts
from tests.load.actors import Samples
from tests.load.deployment import Conditions
from tests.load.run import main, report
from tests.load.scenario import Bound, Played, Scenario, Stage, play
from tests.load.scenarios import SCENARIOS

QUICK = [scenario for scenario in SCENARIOS if scenario.quick]


def small(stage: Stage) -> None:
    stage.traffic.producer("orders", 5, stage.samples, batch=2)
    stage.traffic.producer("orders", 2, stage.samples, delay_seconds=lambda: 5.0)
    stage.traffic.consumer("orders", "billing", "c", stage.samples, messages=10)


SMALL = Scenario(name="small", says="a few messages", play=small, seconds=60)


def played(scenario: Scenario = SMALL) -> Played:
    return play(scenario)


@pytest.mark.parametrize("scenario", QUICK, ids=lambda scenario: scenario.name)
def test_what_holds_today_holds(scenario: Scenario) -> None:
    done = play(scenario)
    assert not done.broken, report(done)


def test_every_message_arrives_once_and_in_time() -> None:
    numbers = played().result.numbers
    assert numbers["refused"] == numbers["refused by quotas"] == numbers["wheels failed"] == 0
    assert 0 <= numbers["undelivered share"] < 0.1, "those of the last seconds are under way"
    assert 0 < numbers["late at most ms"] < 2_000


def test_the_seed_decides_everything() -> None:
    assert played().result == played().result
    other = Scenario(name="small", says="", play=small, seconds=60, conditions=Conditions(seed=2))
    assert play(other).result != played().result


def test_a_call_is_billed_for_about_as_long_as_make_cost_counts() -> None:
    stages: list[Stage] = []

    def keep(stage: Stage) -> None:
        stages.append(stage)
        small(stage)

    play(Scenario(name="kept", says="", play=keep, seconds=60))
    (stage,) = stages
    produced = stage.deployment.lambdas.seconds["produce"]
    typical = sorted(produced)[len(produced) // 2]
    counted = read_counts().fronts["api"].batches[1].send["lambda-gb-second"] / (512 / 1_024)
    assert typical == pytest.approx(counted, rel=0.25)


def test_scenarios_have_names_and_numbers_that_exist() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    known = played().result.numbers
    for scenario in SCENARIOS:
        assert known.keys() >= {bound.number for bound in (*scenario.holds, *scenario.aims)} | set(scenario.numbers)


def test_a_broken_bound_and_an_aim_are_said() -> None:
    scenario = Scenario(
        name="small",
        says="a few messages",
        play=small,
        seconds=30,
        holds=(Bound("refused", least=1),),
        aims=(Bound("late p99 ms", most=1), Bound("refused", most=0)),
    )
    text = report(play(scenario))
    assert "BROKEN: refused: at least 1; it is 0" in text
    assert "does not hold yet: late p99 ms: at most 1" in text
    assert "holds by now, so it must be listed under holds: refused" in text
    assert "used most" in text


def test_the_command_lists_the_numbers_and_refuses_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--limits"]) == 0
    assert "partition writes" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["nothing"])


def test_the_samples_of_a_run_without_messages_are_empty() -> None:
    idle = Scenario(name="idle", says="", play=lambda stage: None, seconds=120)
    numbers = play(idle).result.numbers
    assert numbers["messages a second"] == numbers["late p99 ms"] == 0
    assert Samples().undelivered == 0
