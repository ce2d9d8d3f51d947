"""Shows and changes routes and cells."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from msgspec import Struct

from hourwheel.client.calls.call import Calls, answers, query, without_none
from hourwheel.client.transport.codec import path
from hourwheel.model.route_records import CellDescription, CellKind, DrainResult, RemovedCell, RouteStep, SubjectRoute


class _Cells(Struct):
    cells: list[CellDescription]


class CellCalls(Calls):
    def get_route(self, subject: str) -> SubjectRoute:
        """Shows which logs in which cells hold the queues of a subject.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> api.get_route("orders").queues[0].mappings[0].cell
            'home'
        """
        route: SubjectRoute = self._http.call("GET", path("routes", subject), answers(SubjectRoute))
        return route

    def move_queue(self, subject: str, queue: int, cell: str, *, dry_run: bool = False) -> RouteStep:
        """Moves a queue to a cell: new messages go there, and their offsets follow the earlier ones. Older messages can
        be read where they are.

        If a move is cut off, the next process that finds it finishes it; the call may be repeated. ``dry_run`` shows
        the route before and after, and changes nothing.

        Raises:
            NotFound: there is no such subject, queue or cell.
            Conflict: the cell takes no queues, the queue is in the cell already, or another caller moves it.
            ServerUnavailable: a cell does not answer. If the error says that the move is pending, it is carried out
                later, unless ``withdraw_route_changes`` withdraws it.

        Example:
            >>> step = api.move_queue("orders", 0, "fast")
            >>> step.after.queues[0].mappings[-1].cell
            'fast'
        """
        body = {"cell": cell, "dry_run": dry_run}
        where = path("subjects", subject, "queues", str(queue), "move")
        step: RouteStep = self._http.call("POST", where, answers(RouteStep), body=body, safe=dry_run)
        return step

    def withdraw_route_changes(self, subject: str, queue: int | None = None, *, dry_run: bool = False) -> RouteStep:
        """Withdraws the pending move of a queue; without ``queue`` all pending changes of the subject's route, an
        addition of queues too. Changes nothing if nothing is pending, so the call may be repeated.

        Raises:
            NotFound: there is no such subject or queue.
            Conflict: the move has begun, or was carried out meanwhile. Without ``queue`` the error names the moves that
                have begun; the other changes are withdrawn.

        Example:
            >>> step = api.withdraw_route_changes("orders", 0)
            >>> step.after.queues[0].moving_to is None
            True
        """
        target = path("routes", subject, "pending") + query(queue=queue, dry_run="true" if dry_run else None)
        step: RouteStep = self._http.call("DELETE", target, answers(RouteStep), safe=dry_run)
        return step

    def spread_queues(self, subject: str, cells: Sequence[str] | None = None, *, dry_run: bool = False) -> RouteStep:
        """Spreads the queues of a subject evenly over ``cells`` (None: all that take queues), with as few moves as
        possible. A queue that is in the right cell does not move, so the call may be repeated.

        Raises:
            NotFound: there is no such subject or cell.
            Conflict: a cell takes no queues, or another caller changes the route.

        Example:
            >>> api.spread_queues("orders", ["fast"]).after.epoch
            1
        """
        body = without_none(cells=None if cells is None else list(cells), dry_run=dry_run)
        step: RouteStep = self._http.call(
            "POST", path("subjects", subject, "spread"), answers(RouteStep), body=body, safe=dry_run
        )
        return step

    def add_queues(self, subject: str, queues: int, *, dry_run: bool = False) -> RouteStep:
        """Adds queues to a subject, until it has ``queues`` (1 to 64) altogether; does nothing if it has this many.

        Raises:
            NotFound: there is no such subject.
            Conflict: the subject has more queues already, or another caller changes the route.

        Example:
            >>> len(api.add_queues("orders", 4).after.queues)
            4
        """
        body = {"queues": queues, "dry_run": dry_run}
        step: RouteStep = self._http.call("POST", path("subjects", subject, "queues"), answers(RouteStep), body=body)
        return step

    def list_cells(self) -> list[CellDescription]:
        """Lists the home cell and the other cells.

        Raises nothing but the errors of every call.

        Example:
            >>> api.list_cells()[0].cell
            'home'
        """
        cells: list[CellDescription] = self._http.call("GET", path("cells"), answers(_Cells), then=attrgetter("cells"))
        return cells

    def get_cell(self, cell: str) -> CellDescription:
        """Shows a cell with its state.

        Raises:
            NotFound: there is no such cell.

        Example:
            >>> api.get_cell("home").state
            'normal'
        """
        shown: CellDescription = self._http.call("GET", path("cells", cell), answers(CellDescription))
        return shown

    def put_cell(
        self,
        cell: str,
        *,
        kinds: Sequence[CellKind] | None = None,
        state: Literal["normal", "read_only", "draining", "offline"] | None = None,
        dry_run: bool = False,
    ) -> CellDescription:
        """Adds a cell, or changes its ``kinds``; with ``state`` alone sets the state of a cell. An operator names the
        storage of a cell when the server is started or deployed, before the cell is added. Queues move only to a
        ``normal`` cell; an ``offline`` one is not read either.

        Raises:
            NotFound: the server does not know the storage of the cell, or the cell whose ``state`` is given was not
                added.
            Conflict: the cell takes messages of queues, and would become ``read_only`` or ``offline``.

        Example:
            >>> api.put_cell("fast").state
            'normal'
            >>> api.put_cell("fast", state="read_only").state
            'read_only'
        """
        body = without_none(kinds=None if kinds is None else list(kinds), state=state, dry_run=dry_run)
        changed: CellDescription = self._http.call("PUT", path("cells", cell), answers(CellDescription), body=body)
        return changed

    def drain_cell(self, cell: str, *, dry_run: bool = False) -> DrainResult:
        """Moves every queue of a cell to other cells. A queue that cannot be moved is named in ``unmoved`` and holds up
        no other one; the cell stays ``draining``. Stored messages stay in the cell until they expire; repeat the call
        to see which are left.

        Raises:
            NotFound: there is no such cell.
            Conflict: the cell is the home cell, or no other cell takes queues.

        Example:
            >>> api.drain_cell("fast").left
            []
        """
        result: DrainResult = self._http.call(
            "POST", path("cells", cell, "drain"), answers(DrainResult), body={"dry_run": dry_run}
        )
        return result

    def remove_cell(self, cell: str, *, lost: bool = False, dry_run: bool = False) -> RemovedCell:
        """Removes a cell that was drained and is empty. Its storage stays.

        With ``lost`` gives up a cell whose storage is gone for good. The cell must be ``offline``. The messages in it
        are lost; its queues go on in other cells, at offsets above all that it gave out. ``lost`` in the result lists
        the lost parts. The call may be repeated. The name of the cell cannot be used again.

        Raises:
            NotFound: there is no such cell.
            Conflict: the cell is not drained, or is not empty; the error names its contents. With ``lost``: the cell is
                not offline, the server can read its storage, or another caller changes it.

        Example:
            >>> api.drain_cell("fast").left
            []
            >>> api.remove_cell("fast").state
            'removed'
        """
        chosen = query(lost="true" if lost else None, dry_run="true" if dry_run else None)
        removed: RemovedCell = self._http.call(
            "DELETE", path("cells", cell) + chosen, answers(RemovedCell), safe=dry_run
        )
        return removed
