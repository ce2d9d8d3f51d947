"""Declares ``settings.json``, which the pages read before anything else."""

import msgspec

from hourwheel import __version__
from hourwheel.api.control.bodies import PushBody, RetryBody
from hourwheel.console.form_fields import FormField, form_fields
from hourwheel.model.group_settings import AllGroupSettings
from hourwheel.model.settings import declared, described
from hourwheel.model.subject_settings import SubjectSettings


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Tells the pages how they reach the API, and what they may do and show."""

    title: str = "Hourwheel"
    """The title of the pages: the name of the deployment."""

    read_only: bool = False
    """Whether the pages offer no actions."""

    needs_token: bool = False
    """Whether the API requires a token; the pages then ask for one."""

    passes_on: bool = False
    """Whether ``hourwheel console`` passes the calls on, with a token or signatures of its own."""

    aws: bool = False
    """Whether each call is billed: the pages then read less often, and show what they cost."""

    call_usd: float = 0.0
    """The dollars of a call, without those of the read units."""

    read_usd: float = 0.0
    """The dollars of reading the numbers of a subject or a group."""

    version: str = __version__
    """The version of the server or of ``hourwheel console``; "" for a caller without a token."""

    group_settings: tuple[FormField, ...] = form_fields(declared(AllGroupSettings))
    """The fields of the forms that create and change groups."""

    push_target: tuple[FormField, ...] = form_fields(described(PushBody))
    """The fields of a push target in the forms of groups."""

    retry_policy: tuple[FormField, ...] = form_fields(described(RetryBody))
    """The fields of a retry policy in the forms of groups."""

    subject_settings: tuple[FormField, ...] = form_fields(declared(SubjectSettings))
    """The fields of the form that changes subjects."""
