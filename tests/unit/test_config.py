"""The configuration: read exactly, refused with file, key, found and accepted; shown in a form that reads back."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget import values
from pyslurm_budget.config import Config, effective, find_config, load_config, masked, read_config, setting_lines
from pyslurm_budget.config_keys import KEYS, TIMES
from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.policy import Policy, PoolRule
from pyslurm_budget.errors import ConfigError

HERE = Path("/etc/sbudget/sbudget.toml")


def read(text: str) -> Config:
    return read_config(text, HERE)


def test_an_empty_file_gives_the_defaults_of_the_policy() -> None:
    config = read("")
    assert config.policy == Policy()
    assert config.mode is Mode.OBSERVE
    assert config.source == HERE


def test_values_are_read_exactly() -> None:
    config = read(
        """
        cluster = "alpha"
        mode = "enforce"
        operators = ["alice"]
        [ledger]
        url = "sqlite:///x"
        lease = "90s"
        [contract]
        cap = "0-04:00"
        default = "30m"
        [admission]
        overdraft = 0.1
        ceiling_part = "1/3"
        [charge]
        by = "gpu"
        run_on = "25%"
        [classes]
        normal = "normal-spare"
        [pools.a]
        flavors = ["a100", "a100-80"]
        [pools.owners]
        partitions = ["lab"]
        """
    )
    assert config.policy.cap == 4 * 3600
    assert config.policy.default_contract == 1800
    assert config.policy.overdraft == Fraction(1, 10)  # not the nearest binary fraction
    assert config.policy.ceiling_part == Fraction(1, 3)
    assert config.policy.run_on_price == Fraction(1, 4)
    assert config.policy.charge_largest is False
    assert dict(config.policy.classes.twins) == {"normal": "normal-spare"}
    assert config.policy.pools == (PoolRule("a", ("a100", "a100-80")), PoolRule("owners", (), ("lab",)))
    assert (config.cluster, config.mode, config.operators, config.lease_seconds) == (
        "alpha",
        Mode.ENFORCE,
        ("alice",),
        90,
    )


def test_slurmdbds_database() -> None:
    assert read("").accounting == "sacct"
    config = read(
        "[slurm]\naccounting = 'sql'\n[slurm.database]\nhost = 'db1'\nport = 3307\nuser = 'ro'\nname = 'acct'\n"
        "socket = '/run/sock'\npassword_file = 'secret'"
    )
    assert (config.accounting, config.database_host, config.database_port) == ("sql", "db1", 3307)
    assert (config.database_user, config.database_name) == ("ro", "acct")
    assert (config.database_socket, config.database_password_file) == (Path("/run/sock"), HERE.parent / "secret")


def test_fixed_capacities_are_by_pool() -> None:
    config = read("[capacity.fixed]\nh100 = 64\n'my pool' = 0")
    assert dict(config.policy.fixed) == {"h100": 64, "my pool": 0}
    again = read("\n".join(setting_lines(replace(config, cluster="alpha"))))
    assert again.policy.fixed == config.policy.fixed
    assert effective(config)["capacity.fixed.h100"] == 64


def test_parts_may_have_modes_of_their_own() -> None:
    config = read("[modes.partitions]\n'*' = 'observe'\ngpu = 'enforce'\n[modes.budgets]\nbio = 'advise'")
    assert dict(config.policy.modes.partitions) == {"*": Mode.OBSERVE, "gpu": Mode.ENFORCE}
    assert dict(config.policy.modes.budgets) == {"bio": Mode.ADVISE}
    again = read("\n".join(setting_lines(replace(config, cluster="alpha"))))
    assert again.policy.modes == config.policy.modes
    assert effective(config)["modes.budgets.bio"] is Mode.ADVISE


def test_interactive_jobs_are_told_by_partition_qos_or_name() -> None:
    config = read("[interactive]\npartitions = ['ood']\nnames = ['jupyter*']")
    assert config.policy.interactive == Interactive(("ood",), (), ("jupyter*",))
    assert read("\n".join(setting_lines(replace(config, cluster="alpha")))).policy == config.policy


def test_every_field_can_be_set() -> None:
    settable = {".".join(key.sets.split(".")[:2]) for key in KEYS}
    every = {field.name for field in fields(Config)} | {f"policy.{field.name}" for field in fields(Policy)}
    assert every - settable == {
        "policy",
        "source",
        "policy.classes",
        "policy.pools",
        "policy.fractions",
        "policy.fixed",
        "policy.modes",
    }
    assert settable <= every | {"adopt"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clutser = 'x'", ["unknown key clutser", "did you mean cluster?"]),
        ("[contract]\ncpa = '4h'", ["unknown key contract.cpa", "did you mean contract.cap?"]),
        ("[contarct]\ncap = '4h'", ["unknown key contarct", "did you mean contract?"]),
        ("contract = 3", ["contract", "found 3", "section [contract]"]),
        ("[contract]\ncap = 240", ["contract.cap", "found 240", '"4h"']),
        ("[contract]\ncap = '240'", ["contract.cap", "found '240'", '"4h"']),
        ("[contract]\ncap = 'soon'", ["contract.cap", "found 'soon'", '"4h"']),
        ("[contract]\ncap = '0s'", ["contract.cap", "longer than 0"]),
        ("[admission]\noverdraft = '-2%'", ["admission.overdraft", "found '-2%'", '"2%"']),
        ("[admission]\noverdraft = true", ["admission.overdraft", "found true"]),
        ("[admission]\noverdraft = inf", ["admission.overdraft", "found 'inf'"]),
        ("[admission]\noverdraft = '1/0'", ["admission.overdraft", "found '1/0'"]),
        ("[admission]\narray_ahead = -1", ["admission.array_ahead", "found -1", "whole number"]),
        ("[admission]\narray_ahead = 1.5", ["admission.array_ahead", "found 1.5", "whole number"]),
        ("[displace]\nold_runs = 'yes'", ["displace.old_runs", "found 'yes'", "true or false"]),
        ("mode = 'on'", ["mode", "found 'on'", "observe, advise, enforce"]),
        ("[charge]\nby = 'cpu'", ["charge.by", "found 'cpu'", '"largest" and "gpu"']),
        ("[drain]\nreason = '('", ["drain.reason", "no regular expression"]),
        ("[reports]\ntimezone = 'Mars/Olympus'", ["reports.timezone", "Mars/Olympus"]),
        ("operators = 'alice'", ["operators", "found 'alice'", "list"]),
        ("operators = ['alice', 'alice']", ["operators", "'alice'", "twice"]),
        ("cluster = ''", ["cluster", "found ''", "not empty"]),
        ("[classes]\nnormal = 'high'\nhigh = 'low'", ["classes.normal", "high is a managed QOS itself"]),
        ("[classes]\nnormal = 'normal'", ["classes.normal", "managed QOS itself"]),
        ("[classes]", ["classes", "section with entries"]),
        ("[pools.a]\nflavors = ['x']\n[pools.b]\nflavors = ['x']", ["pools.b.flavors", "x belongs to pool a"]),
        ("[pools.a]\nflavours = ['x']", ["pools.a.flavours", "did you mean flavors?"]),
        ("[pools.a]\nflavors = []", ["pools.a", "neither flavors nor partitions"]),
        ("[capacity.fixed]\nh100 = '64'", ["capacity.fixed.h100", "found '64'", "whole number"]),
        ("[capacity.fixed]\nh100 = -1", ["capacity.fixed.h100", "found -1", "whole number"]),
        ("[capacity.fixed]", ["capacity.fixed", "section with entries"]),
        ("[capacity]\nfixed = 64", ["capacity.fixed", "section with entries"]),
        ("[capacity]\nfixd = 64", ["unknown key capacity.fixd", "did you mean capacity.fixed?"]),
        ("[modes.budgets]\nbio = 'on'", ["modes.budgets.bio", "found 'on'", "observe, advise, enforce"]),
        ("[modes.budgets]", ["modes.budgets", "section with entries"]),
        ("[modes.budget]\nbio = 'observe'", ["unknown key modes.budget", "did you mean modes.budgets?"]),
        ("[modes]\nbudgets = 'observe'", ["modes.budgets", "section with entries"]),
        ("[contract]\ndefault = '9h'", ["contract.default is longer than contract.cap"]),
        ("[contract]\nfloor = '9h'", ["contract.floor is longer than contract.cap"]),
        ("[window]\nlength = '4h'", ["contract.cap is longer than window.length"]),
        ("[cycle]\nstale_after = '30s'", ["cycle.stale_after", "cycle.interval"]),
        ("[publish]\ntable = 'x'\nstate = 'x'", ["publish.table and publish.state are the same file"]),
        ("[slurm]\naccounting = 'mysql'", ["slurm.accounting", "found 'mysql'", '"sacct" and "sql"']),
        ("[slurm.database]\nhots = 'db'", ["unknown key slurm.database.hots", "did you mean slurm.database.host?"]),
        ("[slurm.databse]\nhost = 'db'", ["unknown key slurm.databse"]),
        ("[slurm]\ndatabase = 'db'", ["slurm.database", "found 'db'", "section [slurm.database]"]),
        ("[slurm.database]\nport = 70000", ["slurm.database.port", "found 70000", "1 to 65535"]),
        ("'contract.cap' = '4h'", ["unknown key contract.cap"]),
        ("'slurm.database' = {host = 'db'}", ["unknown key slurm.database"]),
        ("mode = observe", ["not valid TOML"]),
    ],
)
def test_what_is_wrong_is_named(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    for word in [str(HERE), *words]:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_search_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text("cluster = 'one'")
    other.write_text("cluster = 'other'")
    environ = {"SBUDGET_CONFIG": str(other)}
    assert load_config(one, environ).cluster == "one"
    assert load_config(None, environ).cluster == "other"
    assert find_config(None, {}) in (None, HERE)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="named by --config"):
        load_config(missing, {})
    with pytest.raises(ConfigError, match=r"named by \$SBUDGET_CONFIG"):
        load_config(None, {"SBUDGET_CONFIG": missing})


def test_the_ledger_url_of_the_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[ledger]\nurl = 'sqlite:///a'")
    assert load_config(file, {}).ledger_url == "sqlite:///a"
    assert load_config(file, {"SBUDGET_LEDGER_URL": "sqlite:///b"}).ledger_url == "sqlite:///b"


@pytest.mark.parametrize(
    "url",
    [
        *("sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite://", "sqlite://?timeout=5"),
        "sqlite:////:memory:",
    ],
)
def test_a_ledger_in_memory_would_be_lost(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"ledger\.url: found .*is lost when a command ends; write a path"):
        read(f"[ledger]\nurl = '{url}'")
    file = tmp_path / "c.toml"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"\$SBUDGET_LEDGER_URL: found .*is lost when a command ends"):
        load_config(file, {"SBUDGET_LEDGER_URL": url})


def test_relative_paths_are_beside_the_file() -> None:
    config = read("state_dir = 'here'\nkill_switch = 'stop'")
    assert config.kill_switch == Path("/etc/sbudget/stop")
    assert config.table_path == Path("/etc/sbudget/here/public/table")
    assert config.state_path == Path("/etc/sbudget/here/public/state.json")


def test_passwords_are_not_shown() -> None:
    assert masked("mysql+pymysql://sb:s3:cr@t@db/x") == "mysql+pymysql://sb:***@db/x"
    assert masked("postgresql+psycopg://sb@db/x") == "postgresql+psycopg://sb@db/x"
    assert masked("sqlite:////var/lib/x") == "sqlite:////var/lib/x"
    secret = read("[ledger]\nurl = 'postgresql+psycopg://sb:secret@db/x'")
    assert "secret" not in str(effective(secret)) + "".join(setting_lines(secret))


def _toml_value(key_path: str) -> st.SearchStrategy[str]:
    key = next(k for k in KEYS if k.path == key_path)
    if key.read in TIMES:
        return st.integers(61, 10**6).map(lambda n: f'"{n}s"')
    if key.read is values.fraction:
        return st.fractions(0, 5).map(lambda f: f'"{f}"')
    if key.read is values.whole:
        return st.integers(0, 10**6).map(str)
    return st.just("")


NUMBERS = [k for k in KEYS if k.read in TIMES or k.read in (values.fraction, values.whole)]


@given(st.data())
def test_what_is_shown_reads_back_as_the_same(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from([k.path for k in NUMBERS]), unique=True, max_size=8))
    names = st.text('ab-." é', min_size=1, max_size=6).filter(str.strip)
    pool = data.draw(names)
    lines = [f"{path} = {data.draw(_toml_value(path))}" for path in chosen]
    quoted = pool.replace('"', '\\"')
    text = "\n".join([*lines, f'pools."{quoted}".flavors = ["{quoted}"]', 'classes."no rmal" = "sp"'])
    try:
        config = read(text)
    except ConfigError as refused:
        assert any(word in str(refused) for word in ("longer than", "shorter than"))  # only contradictions
        return
    assert read("\n".join(setting_lines(config))) == config


@given(st.fractions(0, 100))
def test_fractions_are_exact(part: Fraction) -> None:
    assert values.fraction(f"{part}") == part
    assert values.fraction(f"{part.numerator}") == part.numerator
