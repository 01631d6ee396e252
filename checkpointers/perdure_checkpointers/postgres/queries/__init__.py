"""SQL: named blocks in `.sql` files, composed to statements once for each schema."""

from perdure_checkpointers.postgres.queries.catalog import CacheQueries, Queries
from perdure_checkpointers.postgres.queries.statement import Statement

__all__ = ["CacheQueries", "Queries", "Statement"]
