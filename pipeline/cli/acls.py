"""The verbs `acls`: they add, list and remove ACLs, with the options of Kafka's kafka-acls.sh."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from msgspec import Struct, structs

from group_coordinator.pipeline.cli.options import OwnRoot
from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_note, print_structs
from group_coordinator.pipeline.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from group_coordinator.schemas.acls import AclBinding

acls_app = typer.Typer(help="Manage Kafka's ACLs: who may do what.", no_args_is_help=True)

Names = list[str] | None
Topic = Annotated[Names, typer.Option("--topic", help="A topic; `*` means all topics.")]
Group = Annotated[Names, typer.Option("--group", help="A group; `*` means all groups.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Transactional = Annotated[Names, typer.Option("--transactional-id", help="A transactional id.")]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        help="literal or prefixed; `list` and `remove` also take any and match.",
    ),
]
AllowPrincipal = Annotated[
    Names, typer.Option("--allow-principal", help="User:NAME; `User:*` means all users.")
]
DenyPrincipal = Annotated[Names, typer.Option("--deny-principal", help="As --allow-principal.")]
AllowHost = Annotated[Names, typer.Option("--allow-host", help="An address; all by default.")]
DenyHost = Annotated[Names, typer.Option("--deny-host", help="An address; all by default.")]
Operations = Annotated[
    Names, typer.Option("--operation", help="Read, Write, Describe, ...; All by default.")
]
Producer = Annotated[
    bool, typer.Option("--producer", help="The operations of a producer to --topic.")
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="The operations of a consumer of --topic in --group.")
]
# The operations of the two options, by kind of resource. Source: Kafka's AclCommand.
_PRODUCER = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
_CONSUMER = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
# The ACLs that allow all operations to all users again. Removing all ACLs denies everything, so
# that too large a removal does not open a root.
OPEN = "--allow-principal 'User:*' --topic '*' --group '*' --cluster --transactional-id '*'"
_FIRST = (
    "These are the first ACLs of this root. From then on, operations that no ACL allows are denied "
    "to all users but super.users, also after all ACLs are removed. To allow everything again: "
    f"group-coordinator acls add {OPEN} --root {{root}}"
)


class _AclOptions(Struct, frozen=True):
    allow_principal: AllowPrincipal = None
    deny_principal: DenyPrincipal = None
    allow_host: AllowHost = None
    deny_host: DenyHost = None
    operation: Operations = None
    topic: Topic = None
    group: Group = None
    cluster: Cluster = False
    transactional_id: Transactional = None
    pattern_type: Pattern = "literal"
    producer: Producer = False
    consumer: Consumer = False

    def resources(self) -> list[tuple[str, str]]:
        return _resources(self.topic, self.group, self.cluster, self.transactional_id)

    def principals(self) -> list[tuple[str, str, str]]:
        return [
            *_principals(self.allow_principal, self.allow_host, "ALLOW"),
            *_principals(self.deny_principal, self.deny_host, "DENY"),
        ]

    def bindings(self) -> list[AclBinding]:
        given = ((_PRODUCER, self.producer), (_CONSUMER, self.consumer))
        kinds = [each for each, asked in given if asked]
        pattern_type = self.pattern_type.upper()
        return _bindings(self.resources(), pattern_type, self.principals(), self.operation, kinds)


def _with_acl_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb an option for each field of `_AclOptions`, which is its first argument."""
    hints = get_type_hints(_AclOptions, include_extras=True)
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(_NOTHING, name), annotation=hint)
        for name, hint in hints.items()
    ]
    own = list(signature(verb, eval_str=True).parameters.values())[1:]

    @wraps(verb)
    def run(**given: Any) -> None:
        verb(_AclOptions(**{name: given.pop(name) for name in hints}), **given)

    shown = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    parameters = [*shown, *options]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


_NOTHING = _AclOptions()


@acls_app.command("add")
@_with_acl_options
def acls_add(
    options: _AclOptions,
    root: OwnRoot,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation before the first ACL.")
    ] = False,
) -> None:
    """Add ACLs. Once a root has ACLs, operations that no ACL allows are denied.

    Before the first ACL the command asks for confirmation. A coordinator applies ACLs from its next
    batch, a gateway within a second.
    """
    from group_coordinator.pipeline.tables import TableMissing, add_acls, read_acls

    wanted = options.bindings()
    if not wanted:
        raise typer.BadParameter(
            "name a resource (--topic, --group, --cluster, --transactional-id), and a principal to "
            "allow or deny (--allow-principal, --deny-principal)"
        )
    try:
        is_first = read_acls(root) is None
    except TableMissing as missing:
        print_note(str(missing))
        is_first = True
    _show("Adding ACLs for", wanted)
    if is_first:
        print_note(_FIRST.format(root=shlex.quote(root)))
        if not yes:
            typer.confirm("Add them?", abort=True, err=True)
    add_acls(root, wanted, anew=is_first)


@acls_app.command("list")
def acls_list(
    root: OwnRoot,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    transactional_id: Transactional = None,
    pattern_type: Pattern = "any",
    principal: Annotated[
        Names, typer.Option("--principal", help="Only the ACLs of this principal.")
    ] = None,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """List the ACLs in force, all of them or those of some resources."""
    from group_coordinator.pipeline.tables import read_acls
    from group_coordinator.schemas.acls import AclBinding, AclFilter

    resources: list[tuple[str, str | None]] = [
        *_resources(topic, group, cluster, transactional_id),
    ]
    principals: list[str | None] = [*(principal or ())]
    filters = [
        AclFilter(kind, name, pattern_type.upper(), who)
        for (kind, name), who in product(resources or [("ANY", None)], principals or [None])
    ]
    acls = read_acls(root)
    found = [acl for acl in acls or () if any(each.matches(acl) for each in filters)]
    if format_ is not OutputFormat.TABLE:
        print_structs(format_, AclBinding, found)
    else:
        _show("Current ACLs for", found)
    if acls is None:
        typer.echo("there are no ACLs: every operation is allowed to every user", err=True)


@acls_app.command("remove")
@_with_acl_options
def acls_remove(
    options: _AclOptions,
    root: OwnRoot,
    force: Annotated[bool, typer.Option("--force", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove ACLs; without a principal, all those of the resources.

    When no ACL is left, only super users are allowed to do anything.
    """
    from group_coordinator.pipeline.tables import remove_acls
    from group_coordinator.schemas.acls import AclFilter

    resources = options.resources()
    if not resources:
        raise typer.BadParameter("name a resource: --topic, --group, --cluster, --transactional-id")
    if options.principals():
        filters = [AclFilter(**structs.asdict(acl)) for acl in options.bindings()]
    else:
        pattern_type = options.pattern_type.upper()
        filters = [AclFilter(kind, name, pattern_type) for kind, name in resources]
    if not force:
        named = ", ".join(f"{kind.lower()} {name!r}" for kind, name in resources)
        typer.confirm(f"Remove the ACLs of {named}?", abort=True)
    _show("Removed ACLs of", remove_acls(root, filters))


def _resources(
    topics: Names, groups: Names, cluster: bool, transactional_ids: Names
) -> list[tuple[str, str]]:
    from group_coordinator.schemas.acls import CLUSTER_NAME

    return [
        *(("TOPIC", name) for name in topics or ()),
        *(("GROUP", name) for name in groups or ()),
        *([("CLUSTER", CLUSTER_NAME)] if cluster else ()),
        *(("TRANSACTIONAL_ID", name) for name in transactional_ids or ()),
    ]


def _principals(principals: Names, hosts: Names, permission: str) -> list[tuple[str, str, str]]:
    from group_coordinator.schemas.acls import ANY_HOST

    return [
        (principal, host, permission)
        for principal, host in product(principals or (), hosts or [ANY_HOST])
    ]


def _bindings(
    resources: Iterable[tuple[str, str]],
    pattern_type: str,
    who: Sequence[tuple[str, str, str]],
    operations: Names,
    kinds: Sequence[dict[str, tuple[str, ...]]],
) -> list[AclBinding]:
    from group_coordinator.schemas.acls import AclBinding

    found = []
    for kind, name in resources:
        needed = [each for of in kinds for each in of.get(kind, ())]
        if not kinds:
            needed = [_operation(each) for each in operations or ["All"]]
        for (principal, host, permission), operation in product(who, needed):
            found.append(
                AclBinding(kind, name, pattern_type, principal, host, operation, permission)
            )
    return list(dict.fromkeys(found))


def _operation(name: str) -> str:
    """Return Kafka's name of an operation; `DescribeConfigs` and DESCRIBE_CONFIGS are the same."""
    from group_coordinator.schemas.acls import AclOperation

    wanted = name.replace("_", "").replace("-", "").upper()
    for each in AclOperation:
        if each > AclOperation.ANY and each.name.replace("_", "") == wanted:
            return each.name
    raise typer.BadParameter(f"{name!r} is not an operation of ACLs, such as Read or All")


def _show(what: str, acls: Iterable[AclBinding]) -> None:
    by_resource: dict[tuple[str, str, str], list[AclBinding]] = {}
    for acl in acls:
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_resource.setdefault(pattern, []).append(acl)
    for (kind, name, pattern_type), found in by_resource.items():
        typer.echo(
            f"{what} resource `ResourcePattern(resourceType={kind}, name={quoted(name)}, "
            f"patternType={pattern_type})`:"
        )
        for acl in found:
            typer.echo(
                f" \t(principal={quoted(acl.principal)}, host={acl.host}, "
                f"operation={acl.operation}, "
                f"permissionType={acl.permission})"
            )
        typer.echo("")
