"""The ledger of one cluster over a database URL: all that :class:`pyslurm_budget.service.ports.Ledger` asks."""

from __future__ import annotations

from pyslurm_budget.ledger.budgets import Budgets
from pyslurm_budget.ledger.counts import Counts
from pyslurm_budget.ledger.decisions import Decisions
from pyslurm_budget.ledger.engine import open_engine
from pyslurm_budget.ledger.entries import Entries
from pyslurm_budget.ledger.journal import Journal
from pyslurm_budget.ledger.lease import Lease
from pyslurm_budget.ledger.migrate import require_current
from pyslurm_budget.ledger.past import Past
from pyslurm_budget.ledger.protections import Protections
from pyslurm_budget.ledger.pseudonyms import Pseudonyms
from pyslurm_budget.ledger.usage import Usage
from pyslurm_budget.ledger.verify import Checks


class SqlLedger(Pseudonyms, Checks, Usage, Counts, Past, Entries, Decisions, Budgets, Protections, Journal, Lease):
    """Opens the ledger; raises LedgerError if it cannot be reached or has another release's schema."""

    def __init__(self, url: str, cluster: str) -> None:
        """``url`` as SQLAlchemy takes it; an SQLite file that does not exist is made."""
        engine = open_engine(url)
        try:
            require_current(engine)
        except BaseException:
            engine.dispose()
            raise
        super().__init__(engine, cluster)

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()
