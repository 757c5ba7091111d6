"""`prfaasctl profile`: what a model's KV cache weighs and what an engine takes to make it."""

import typer

from prfaas_cli import profile_estimate, profile_run, profile_show
from prfaas_cli.profile_kv import kv

app = typer.Typer(help="Know a model's KV cache and an engine's speed.", no_args_is_help=True)
app.command("kv")(kv)
app.command("show")(profile_show.show)
app.command("list")(profile_show.list_profiles)
app.command("run")(profile_run.run)
app.command("estimate")(profile_estimate.estimate)
