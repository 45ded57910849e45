"""`penstock acl`: adds, removes and lists the access rules of a cluster, and asks what they decide."""

from __future__ import annotations

import click

from penstock.admin import api
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page, text_columns
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import print_json, print_note, print_result
from penstock.transport.exchange import Json

RESOURCES = ("topic", "group", "subscription", "tenant", "cluster")
_OPERATION = click.Choice(("describe", "read", "write", "create", "alter", "delete", "operate", "metrics", "access"))
_PRINCIPAL = "A principal with its kind: token:NAME, group:ISSUER:NAME, anonymous, or '*' for all others."
force_option = click.option(
    "--force", is_flag=True, help="Make the change even if you could not change rules again after it."
)
tenant_option = click.option(
    "--tenant", metavar="ID", help="Inside of this tenant, whose names are without its prefix. For operators."
)


@click.group(cls=AliasGroup)
@shared_options
def acl(**_: object) -> None:
    """Add, remove and list access rules, and ask what they decide."""


@acl.command()
@click.argument("principals", metavar="PRINCIPAL...", nargs=-1, required=True)
@click.option(
    "--allow", multiple=True, type=_OPERATION, metavar="OPERATION", help="Allow this operation. May be repeated."
)
@click.option(
    "--deny", multiple=True, type=_OPERATION, metavar="OPERATION", help="Deny this operation. May be repeated."
)
@click.option("--topic", metavar="NAME", help="The resource is this topic.")
@click.option("--group", metavar="NAME", help="The resource is this group.")
@click.option("--subscription", metavar="NAME", help="The resource is this subscription.")
@click.option("--cluster", is_flag=True, help="The resource is the cluster.")
@click.option("--prefix", is_flag=True, help="NAME is the beginning of names.")
@click.option("--all", "is_all", type=click.Choice(RESOURCES[:4]), help="The rule is for all of these.")
@click.option("--from", "sources", multiple=True, metavar="NETWORK", help="Only from this network: 10.0.0.0/8.")
@click.option("--id", "rule_id", default="", metavar="ID", help="The id of the rule.  [default: a random one]")
@click.option("--note", default="", metavar="TEXT", help="A text for people.")
@force_option
@tenant_option
@node_options
def add(
    principals: tuple[str, ...], allow: tuple[str, ...], deny: tuple[str, ...], topic: str | None, group: str | None,
    subscription: str | None, cluster: bool, prefix: bool, is_all: str | None, sources: tuple[str, ...], rule_id: str,
    note: str, force: bool, tenant: str | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Add a rule. It allows or denies operations of principals on a resource.

    OPERATION is describe, read, write, create, alter or delete, of a cluster also operate, metrics or access.

    A deny comes before every allow, and an operation that no rule allows is denied.

    \f
    Raises UsageError.
    """
    if bool(allow) == bool(deny):
        raise click.UsageError("give --allow or --deny, and not both: a rule has one effect")
    named = {"topic": topic, "group": group, "subscription": subscription}
    given = [(resource, name) for resource, name in named.items() if name is not None]
    if len(given) + cluster + (is_all is not None) != 1:
        raise click.UsageError("name one resource: --topic, --group, --subscription, --all or --cluster")
    if prefix and not given:
        raise click.UsageError("--prefix needs the name of a topic, group or subscription")
    resource, name = given[0] if given else (is_all or "cluster", "")
    pattern = "all" if not given else "prefix" if prefix else "literal"
    rule = {
        "effect": "allow" if allow else "deny", "principals": principals, "operations": allow or deny,
        "resource": resource, "pattern": pattern, "name": name, "sources": sources, "note": note, "id": rule_id,
    }  # fmt: skip
    added = change(node, "POST", "rules", rule, force=force, tenant=tenant)
    print_result(added, f"Added rule {added['rule']['id']}: {describe(added['rule'])}.", as_json=as_json)


@acl.command()
@click.argument("rule", metavar="ID")
@force_option
@tenant_option
@node_options
def remove(rule: str, force: bool, tenant: str | None, node: Node, as_json: bool) -> None:
    """Remove a rule."""
    removed = change(node, "DELETE", "rules", of=rule, force=force, tenant=tenant)
    print_result(removed, f"Removed rule {rule}.", as_json=as_json)


@acl.command("list")
@tenant_option
@page_options
@node_options
def list_rules(tenant: str | None, page: Page, node: Node, as_json: bool) -> None:
    """List rules."""

    def row_of(rule: Json) -> tuple[str, ...]:
        return rule["id"], describe(rule), ", ".join(rule["sources"]), rule["author"], rule["note"]

    document = node.once().send(api.access("GET", "rules", tenant=tenant, page=page)).json()
    columns = text_columns("id", "rule", "from", "author", "note")
    empty = "There are no rules. Add one with: penstock acl add PRINCIPAL --allow OPERATION --topic NAME"
    print_page(document, "rules", columns, row_of, empty, as_json=as_json)


@acl.command()
@click.argument("principal")
@click.argument("operation", type=_OPERATION, metavar="OPERATION")
@click.argument("resource", type=click.Choice(RESOURCES))
@click.argument("name", default="")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group of the principal. May be repeated.")
@click.option("--from", "address", default="", metavar="ADDRESS", help="The address of the caller.")
@tenant_option
@node_options
def check(
    principal: str, operation: str, resource: str, name: str, groups: tuple[str, ...], address: str,
    tenant: str | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Ask whether a principal may do an operation, and by which rule. Exits with 1 if it may not."""
    question = {
        "principal": principal, "operation": operation, "resource": resource, "name": name, "groups": groups,
        "address": address,
    }  # fmt: skip
    decided = node.once().send(api.access("POST", "check", question, tenant=tenant)).json()
    if as_json:
        print_json(decided)
    else:
        because = "no rule allows it" if decided["rule"] is None else f"rule {decided['rule']}"
        which = f"{resource} {name}" if name else f"the {resource}"
        click.echo(f"{principal} {'may' if decided['allowed'] else 'may not'} {operation} {which}: {because}.")
    if not decided["allowed"]:
        click.get_current_context().exit(1)


def change(
    node: Node,
    method: str,
    what: str,
    document: Json | None = None,
    *,
    of: str = "",
    force: bool = False,
    tenant: str | None = None,
) -> Json:
    """Change rules or tokens, and return the answer. Say which nodes do not serve the change yet. Raises Failure."""
    made: Json = node.once().send(api.access(method, what, document, of=of, force=force, tenant=tenant)).json()
    if behind := made.get("behind"):  # absent from an older node
        nodes = ", ".join(map(str, behind))
        print_note(
            f"Not confirmed by node {nodes}: a node that runs takes the change once it reaches its coordination store."
        )
    return made


def describe(rule: Json) -> str:
    """Return a rule as a sentence."""
    resource, name = rule["resource"], rule["name"]
    which = {
        "literal": f"{resource} {name}",
        "prefix": f"{resource}s that begin with {name}",
        "all": f"the {resource}" if resource in ("cluster", "tenant") else f"all {resource}s",
    }[rule["pattern"]]
    verb = "may" if rule["effect"] == "allow" else "may not"
    return f"{', '.join(rule['principals'])} {verb} {', '.join(rule['operations'])} {which}"
