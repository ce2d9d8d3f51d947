"""Plants a mutant into the running process: the loaded functions get the bytecode of the changed ones."""

import sys
from types import CodeType, FunctionType
from typing import Any

from hourwheel.logs.cas import CasRecord, CasResult, Versioned
from hourwheel.ports.storage import Key, Record, Refused, Store
from tests.mutants.changes import UNCONDITIONAL_PUT, UNCONDITIONAL_SWAP
from tests.mutants.mutations import LIBRARY, Mutant, changed_tree


def plant(mutant: Mutant) -> bool:
    """Changes the loaded function. Returns False if its module is not loaded, if a decorator hides it, or if the change
    leaves out the only use of an outer name, which a loaded function cannot lose."""
    code = _code_of(
        compile(changed_tree(mutant), str(LIBRARY / mutant.module), "exec", dont_inherit=True), mutant.function
    )
    function = _loaded(mutant)
    if function is None or function.__code__.co_freevars != code.co_freevars:
        return False
    function.__globals__.update({UNCONDITIONAL_SWAP: _swap, UNCONDITIONAL_PUT: _put})
    function.__code__ = code
    return True


def _code_of(code: CodeType, name: str) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                return constant
            if name.startswith(constant.co_qualname + "."):
                return _code_of(constant, name)
    raise LookupError(name)


def _loaded(mutant: Mutant) -> FunctionType | None:
    """Returns the function as its module has it, without its decorators."""
    found: Any = sys.modules.get("hourwheel." + mutant.module.removesuffix(".py").replace("/", "."))
    for name in mutant.function.split("."):
        found = vars(found).get(name) if found is not None else None
    for wrapper in ("fget", "func", "__func__", "__wrapped__"):
        found = getattr(found, wrapper, None) or found
    return found if isinstance(found, FunctionType) else None


def _swap(record: CasRecord[Any], value: Any, **rest: Any) -> CasResult[Any]:
    """Stores the value whatever the record holds."""
    current = record.store.get(record.key)
    return record.swap(None if current is None else Versioned(value, current.token), value, **rest)


def _put(store: Store, key: Key, record: Record) -> Refused | None:
    """Stores the record whatever the key holds."""
    current = store.get(key)
    return store.put(key, record, expect=None if current is None else current.token)
