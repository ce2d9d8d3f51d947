"""Plants bugs of changes that concern all messages of a choice."""

from collections.abc import Iterator
from unittest.mock import patch

from hourwheel.delay.chosen_messages import ChosenMessages
from hourwheel.delay.lists.delayed_request import DelayedRequest
from hourwheel.deployment.delayed import DelayedService
from hourwheel.model.pages import ChosenPage
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delaybugs import waiting

CHOSEN: list[Bug] = []
planted = registrar(CHOSEN)

_choosing = waiting(choices=("cancel_chosen", "move_chosen"), cancellers=3, share=1.0, calls=600, reach_ms=60_000)


@planted(sharpen=_choosing)
def a_choice_ends_at_its_first_page() -> Iterator[None]:
    def change(self: ChosenMessages, asked_ms: int | None) -> ChosenPage:
        return ChosenPage(real(self, asked_ms).messages, None)

    real = ChosenMessages.change
    with patch.object(ChosenMessages, "change", change):
        yield


@planted(sharpen=_choosing)
def a_choice_forgets_the_end_of_its_span() -> Iterator[None]:
    def chosen(self: DelayedService, subject: str, request: DelayedRequest) -> ChosenMessages:
        made = real(self, subject, request)
        return ChosenMessages(
            made.context, made.secret, made.subject, made.request._replace(until_ms=None), made.described
        )

    real = DelayedService._chosen
    with patch.object(DelayedService, "_chosen", chosen):
        yield
