#!/usr/bin/python
"""An ansible module: many files and folders in one call, where `copy` and `template` take three each."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: prfaas_files
short_description: Bring files and folders to what they shall be, all in one call
description:
  - Replaces files whose content differs in one step, and sets owner, group and mode.
  - Where a round trip to a host costs more than the work on it, one call for a role's files is what counts.
options:
  folders:
    description: Folders with C(path), C(owner), C(group), C(mode).
    type: list
    elements: dict
    default: []
  files:
    description: Files with C(path), C(content), C(owner), C(group), C(mode); C(secret) ones show no difference.
    type: list
    elements: dict
    default: []
  absent:
    description: Files and folders, with all in them, that shall not be.
    type: list
    elements: path
    default: []
author: PrfaaS
"""
EXAMPLES = r"""
- name: Write the node's files
  prfaas_files:
    files:
      - path: /etc/prfaas/node.toml
        content: "{{ lookup('ansible.builtin.template', 'node.toml.j2') }}"
        group: prfaas
        mode: "0640"
"""
RETURN = r"""
paths:
  description: What was changed.
  type: list
  returned: always
"""

_OWNERSHIP = {
    "path": {"type": "path", "required": True},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
_FOLDER = _OWNERSHIP | {"mode": {"type": "str", "default": "0755"}}
_FILE = _OWNERSHIP | {
    "mode": {"type": "str", "default": "0644"},
    "content": {"type": "str", "required": True, "no_log": True},
    "secret": {"type": "bool", "default": False},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "folders": {"type": "list", "elements": "dict", "options": _FOLDER, "default": []},
            "files": {"type": "list", "elements": "dict", "options": _FILE, "default": []},
            "absent": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    changed, differences = [], []
    try:
        for entry in module.params["folders"]:
            if _bring_folder(entry, check=module.check_mode):
                changed.append(entry["path"])
        for entry in module.params["files"]:
            before = _bring_file(entry, check=module.check_mode)
            if before is not None:
                changed.append(entry["path"])
                if before != entry["content"] and not entry["secret"]:
                    differences.append(_difference(entry, before))
        for path in module.params["absent"]:
            if _remove(path, check=module.check_mode):
                changed.append(path)
    except (OSError, KeyError, ValueError) as error:
        module.fail_json(msg=str(error), paths=changed)
    result = {"changed": bool(changed), "paths": changed}
    module.exit_json(**result, **({"diff": differences} if module._diff else {}))  # noqa: SLF001


def _remove(path: str, *, check: bool) -> bool:
    if not os.path.lexists(path):
        return False
    if check:
        return True
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return True


def _bring_folder(entry: dict, *, check: bool) -> bool:
    path = entry["path"]
    missing = not os.path.isdir(path)
    if missing and not check:
        os.makedirs(path)
    return _bring_ownership(entry, check=check) or missing


def _bring_file(entry: dict, *, check: bool) -> str | None:
    """Return what the file was before a change, empty if there was none; None without a change."""
    path, wanted = entry["path"], entry["content"]
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            before = file.read()
        exists = True
    except FileNotFoundError:
        before, exists = "", False
    if exists and before == wanted:
        return before if _bring_ownership(entry, check=check) else None
    if not check:
        _replace(entry)
    return before


def _replace(entry: dict) -> None:
    """Write it beside, with the right owner and mode from the start, and put it in place."""
    path = entry["path"]
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".prfaas-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(entry["content"])
            file.flush()
            os.fsync(file.fileno())
        _bring_ownership(entry | {"path": temporary}, check=False)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _bring_ownership(entry: dict, *, check: bool) -> bool:
    """Set owner, group and mode; return whether they were, or would be, changed."""
    path = entry["path"]
    if check and not os.path.exists(path):
        return True
    wanted = (_user(entry["owner"]), _group(entry["group"]), int(entry["mode"], 8))
    found = os.stat(path)
    if (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == wanted:
        return False
    if not check:
        os.chown(path, wanted[0], wanted[1])
        os.chmod(path, wanted[2])
    return True


def _user(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def _group(name: str) -> int:
    return grp.getgrnam(name).gr_gid


def _difference(entry: dict, before: str) -> dict:
    path = entry["path"]
    return {
        "before": before,
        "after": entry["content"],
        "before_header": path,
        "after_header": path,
    }


if __name__ == "__main__":
    main()
