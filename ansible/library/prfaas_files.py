#!/usr/bin/python
"""An ansible module: many files and folders in one call; `copy` and `template` take three each."""

from __future__ import annotations

import base64
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
  - A round trip to a host costs more than the work there, so a role brings its files in one call.
options:
  folders:
    description: Folders with C(path), C(owner), C(group), C(mode).
    type: list
    elements: dict
    default: []
  files:
    description:
      - Files with C(path), C(content), C(owner), C(group), C(mode).
      - C(secret) ones show no difference; C(base64) says that the content is given so.
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
    "content": {"type": "str", "required": True, "no_log": False},
    "secret": {"type": "bool", "default": False},
    "base64": {"type": "bool", "default": False},
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
    check, params, differences = module.check_mode, module.params, []
    changed: list[str] = []
    try:
        changed += [e["path"] for e in params["folders"] if _bring_folder(e, check=check)]
        for given in params["files"]:
            entry = given | {"content": _content(given)}
            before = _bring_file(entry, check=check)
            if before is not None:
                changed.append(entry["path"])
                if before != entry["content"] and not (entry["secret"] or entry["base64"]):
                    differences.append(_difference(entry, before))
        changed += [path for path in params["absent"] if _remove(path, check=check)]
    except (OSError, KeyError, ValueError) as error:
        module.fail_json(msg=str(error), paths=changed)
    result = {"changed": bool(changed), "paths": changed}
    module.exit_json(**result, **({"diff": differences} if module._diff else {}))  # noqa: SLF001


def _content(entry: dict) -> str:
    """Return what the file shall hold; bytes that are no UTF-8 as surrogates."""
    if not entry["base64"]:
        return entry["content"]
    return base64.b64decode(entry["content"]).decode("utf-8", "surrogateescape")


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
        with os.fdopen(descriptor, "wb") as file:
            file.write(entry["content"].encode("utf-8", "surrogateescape"))
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
