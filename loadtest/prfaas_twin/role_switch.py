"""Change a twin's role while it runs.

Source: sglang 0.5.23 srt/disaggregation/role_switch.py.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prfaas.records import Role

if TYPE_CHECKING:
    from prfaas_twin.instance import TwinInstance


@dataclass(slots=True)
class RoleSwitch:
    """Answers `/pd_role_switch` of one twin; one switch at a time."""

    twin: "TwinInstance"
    is_busy: bool = False

    async def run(self, body: dict[str, Any]) -> dict[str, Any]:
        """Change the role, if the twin is idle; `safe_to_restore` says that all is as before."""
        new = str(body.get("new_role", ""))
        problem = self._problem(new)
        if problem:
            return self._answer(new, problem, is_safe=not self.is_busy)
        if new == self.twin.role_name:
            return self._answer(new, "ok", success=True)
        if body.get("prepare_only") is True:
            return self._answer(new, "ready", success=True, is_safe=True)
        old = self.twin.role_name
        self.is_busy = True
        try:
            await self.twin.take_role(Role(new))
        finally:
            self.is_busy = False
        return self._answer(new, "ok", success=True) | {"old_role": str(old)}

    def _problem(self, new: str) -> str:
        """Return why the role cannot change."""
        twin = self.twin
        if not twin.engine.role_switch:
            return "--enable-pd-role-switch is not set on this server"
        if self.is_busy:
            return "another role switch is already in progress"
        if new not in (Role.PREFILL, Role.DECODE):
            return f"invalid new_role={new!r}"
        if new == Role.DECODE and twin.model.profile.decode is None:
            return "the twin's profile is of an instance that only prefills"
        if new != twin.role_name and twin.role.requests:
            return "instance is not idle; drain all requests before switching"
        return ""

    def _answer(
        self, new: str, message: str, *, success: bool = False, is_safe: bool = False
    ) -> dict[str, Any]:
        return {
            "rid": None,
            "http_worker_ipc": None,
            "success": success,
            "message": message,
            "old_role": str(self.twin.role_name),
            "new_role": new,
            "safe_to_restore": is_safe,
        }
