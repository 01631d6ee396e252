"""A command that prints the saver's statements for psql.

    python -m perdure_checkpointers.postgres.queries list
    python -m perdure_checkpointers.postgres.queries show NAME [--schema SCHEMA]

`show` prints the statement that the saver sends, with the comments of its file, as a PREPARE; and an
EXECUTE with a NULL for each parameter, beside its name. Paste both into psql, with values in the place of
the NULLs. With NULLs alone, a statement changes nothing.

For a plan, write `EXPLAIN (ANALYZE, BUFFERS)` before EXECUTE. That runs the statement, so put one that
writes between BEGIN and ROLLBACK. A saver with a pool of its own plans as psql does after
`EXECUTE proof_and_settings (pg_backend_pid());`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from perdure_checkpointers.postgres.queries.catalog import statements_as_written
from perdure_checkpointers.postgres.queries.statement import Statement


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure_checkpointers.postgres.queries",
        description="Print the statements that the saver and the node cache send to Postgres.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the names of all statements, each with its sentence")
    show = commands.add_parser("show", help="print one statement, ready for psql")
    show.add_argument("name")
    show.add_argument("--schema", default="perdure", help="default: perdure")
    options = parser.parse_args(arguments)
    if options.command == "list":
        print("\n".join(_listed(statements_as_written("perdure"))))
        return 0
    statements = statements_as_written(options.schema)
    if options.name not in statements:
        parser.error(f"there is no statement {options.name!r}; `list` prints their names")
    print(prepared(options.name, statements[options.name]))
    return 0


def _listed(statements: dict[str, Statement[Any]]) -> Iterator[str]:
    width = max(map(len, statements))
    for name, statement in sorted(statements.items()):
        yield f"{name:{width}}  {statement.sentence}"


def prepared(name: str, statement: Statement[Any]) -> str:
    """Return a statement as PREPARE and EXECUTE, with NULL for each parameter."""
    values = [
        f"    NULL{',' if number < len(statement.names) else ''}  -- ${number} {parameter}"
        for number, parameter in enumerate(statement.names, 1)
    ]
    arguments = "\n".join((" (", *values, ")")) if values else ""
    return (
        f"-- {name}: {statement.sentence}\n"
        f"PREPARE {name} AS\n{statement.text.decode()};\n\n"
        f"EXECUTE {name}{arguments};"
    )


if __name__ == "__main__":
    sys.exit(main())
