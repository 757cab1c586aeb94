"""`forerun keys`: create, list and revoke the keys by which clients of the service identify."""

from typing import Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.commands import DescribedCommands
from forerun.service.cli.output import print_json, screen, table
from forerun.service.settings import Settings
from forerun.service.stores.keys import BadKeyName, Key, keys_of

app = DescribedCommands(
    no_args_is_help=True,
    help="Create, list and revoke API keys; once there is one, the HTTP service requires a key.",
)


@app.command("create")
def create(name: str, scope: str = "read", tenant: str | None = None, json: o.Json = False) -> None:
    """Create a key and print it; it is shown only once, because only its hash is stored.

    Args:
        name: what the key is for, such as a client's name
        scope: what it may do: read (ask), write (store and delete too) or admin
        tenant: tenant whose measurements, devices and graphs its holder uses
        json: print one JSON object
    """
    own = Settings.load().tenant
    if tenant is not None and own is not None:
        raise BadKeyName(
            f"FORERUN_TENANT is {own}, and all keys made here are that tenant's; unset it to make "
            "keys of several tenants for one service."
        )
    key, text = keys_of(Settings.load()).create(name, scope, tenant)
    if json:
        print_json({**_shown(key), "key": text})
        return
    typer.echo(text)
    typer.echo(
        f"{key.id} may {key.scope}. Keep the key, it is not shown again; clients send it as "
        "`Authorization: Bearer KEY`.",
        err=True,
    )


@app.command("list")
def list_keys(json: o.Json = False) -> None:
    """List keys without their secrets.

    Args:
        json: print one JSON object
    """
    keys = keys_of(Settings.load()).keys()
    if json:
        print_json({"keys": [_shown(key) for key in keys]})
        return
    from rich.markup import escape

    heads = ("id", "name", "scope", "created", "tenant")
    rows = table(*heads, left=heads)
    for key in keys:
        rows.add_row(*(escape(str(value or "")) for value in _shown(key).values()))
    screen().print(rows)


@app.command("revoke")
def revoke(identifier: str) -> None:
    """Revoke a key; a running service refuses it from the next request on.

    Args:
        identifier: identifier of the key
    """
    keys_of(Settings.load()).revoke(identifier)
    typer.echo(f"{identifier} is revoked")


def _shown(key: "Key") -> dict[str, Any]:
    return key.model_dump(include={"id", "name", "scope", "created", "tenant"})
