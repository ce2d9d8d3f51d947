"""Plants bugs in the list of subjects: a subject that is there, and that the list leaves out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from hourwheel.logs.cas import CasResult, Versioned
from hourwheel.ports.storage import Key, Store
from hourwheel.registry.record_changes import RecordChange
from hourwheel.registry.records import subject_record
from hourwheel.registry.registry import Registry
from hourwheel.registry.subject_list import SubjectList


@contextmanager
def a_record_has_no_entry() -> Iterator[None]:
    with patch.object(SubjectList, "add", lambda *_: None):
        yield


@contextmanager
def a_record_is_stored_before_its_entry() -> Iterator[None]:
    def create(self: RecordChange[Any], current: Versioned[Any] | None, value: Any) -> CasResult[Any]:
        stored = self._replace(current, value)
        if self.before is not None:
            self.before(self.context.store)
        return stored

    with patch.object(RecordChange, "_create", create):
        yield


@contextmanager
def an_entry_keeps_its_token_when_its_subject_is_created_again() -> Iterator[None]:
    def renew(self: SubjectList, store: Store, key: Key, expect: bytes | None) -> None:
        current = store.get(key)
        if current is None or current.value != b"\x00":
            real(self, store, key, None if current is None else current.token)

    real = SubjectList._renew
    with patch.object(SubjectList, "_renew", renew):
        yield


@contextmanager
def an_erasure_marks_whatever_entry_it_finds() -> Iterator[None]:
    def mark(self: SubjectList, tokens: dict[Key, bytes], generation: int) -> None:
        found = {key: self.context.store.get(key) for key in tokens}
        real(self, {key: record.token for key, record in found.items() if record is not None}, generation)

    real = SubjectList.mark_erased
    with patch.object(SubjectList, "mark_erased", mark):
        yield


@contextmanager
def an_erasure_reads_the_entry_after_its_record() -> Iterator[None]:
    def erase(self: Registry, tombstone: Any) -> None:
        if not tombstone.erased:
            self.erasure.erase_subject(self.context, tombstone, self._of_generation(tombstone))
        if self._erased(subject_record(self.context, tombstone.name), tombstone):
            self.listed.mark_erased(self.listed.tokens(tombstone.name), tombstone.generation)

    with patch.object(Registry, "erase_subject", erase):
        yield


@contextmanager
def an_erasure_that_was_done_marks_the_entry_without_a_write_of_the_record() -> Iterator[None]:
    def erase(self: Registry, tombstone: Any) -> None:
        if tombstone.erased:
            tokens = self.listed.tokens(tombstone.name)
            current = subject_record(self.context, tombstone.name).load()
            if current is not None and current.value == tombstone:
                self.listed.mark_erased(tokens, tombstone.generation)
        else:
            real(self, tombstone)

    real = Registry.erase_subject
    with patch.object(Registry, "erase_subject", erase):
        yield


@contextmanager
def a_creation_changes_the_entry_only_before_its_first_try() -> Iterator[None]:
    def create(self: RecordChange[Any], current: Versioned[Any] | None, value: Any) -> CasResult[Any]:
        if current is None or id(self) not in seen:
            seen[id(self)] = self
            return real(self, current, value)
        return self._replace(current, value)

    seen: dict[int, RecordChange[Any]] = {}
    real = RecordChange._create
    with patch.object(RecordChange, "_create", create):
        yield


LIST_BUGS: dict[Callable[[], AbstractContextManager[None]], str] = {
    a_record_has_no_entry: "a subject to delete and create",
    a_record_is_stored_before_its_entry: "a subject to delete and create",
    an_entry_keeps_its_token_when_its_subject_is_created_again: "a cut-off deletion",
    an_erasure_marks_whatever_entry_it_finds: "a cut-off deletion",
    an_erasure_reads_the_entry_after_its_record: "a subject to delete and create",
    an_erasure_that_was_done_marks_the_entry_without_a_write_of_the_record: "a cut-off creation",
    a_creation_changes_the_entry_only_before_its_first_try: "a cut-off deletion",
}
"""The bugs, and the scene in which each shows."""
