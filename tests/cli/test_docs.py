"""The papers say what the code does: generated pages are up to date, examples are good, every command is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from pyslurm_budget import errors
from pyslurm_budget.cli.main import cli
from pyslurm_budget.config import read_config
from pyslurm_budget.config_keys import KEYS
from pyslurm_budget.service.budgets import check_tree, read_budget_file

ROOT = Path(__file__).resolve().parents[2]


def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["exit-status.md", "configuration.md", "commands.md", "sbudget.toml"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    pages = {file.name: (file, page) for file, page in reference().PAGES.items()}
    file, page = pages[name]
    assert file.read_text(encoding="utf-8") == page(), "run scripts/reference.py"


def test_documented_exit_statuses_are_those_of_the_classes() -> None:
    text = (ROOT / "docs/reference/exit-status.md").read_text(encoding="utf-8")
    rows = {name: int(status) for status, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)}
    assert rows == {f.__name__: f.exit_status for f in errors.SbudgetError.__subclasses__()}


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")

    def walk(group: click.Group, path: str) -> None:
        for name, command in group.commands.items():
            assert f"## {path} {name}\n" in text
            if isinstance(command, click.Group):
                walk(command, f"{path} {name}")

    walk(cli, "sbudget")
    assert "## sbatch-budget\n" in text


def test_the_example_configuration_is_good_and_its_comments_are_too() -> None:
    file = ROOT / "slurm_conf" / "sbudget.toml"
    text = file.read_text(encoding="utf-8")
    assert read_config(text, file).cluster == "alpha"
    opened = re.sub(r"^# (\w+ = |\[)", r"\1", text, flags=re.MULTILINE)
    config = read_config(opened, file)
    assert config.timezone == "Europe/Berlin"
    assert [rule.name for rule in config.policy.pools] == ["a100", "owners"]
    for key in KEYS:
        assert re.search(rf"^(# )?{key.path.rpartition('.')[2]} = ", text, re.MULTILINE)


def test_the_example_of_the_budget_file_is_good() -> None:
    text = (ROOT / "slurm_conf" / "budgets.toml").read_text(encoding="utf-8")
    slurm = {
        "root": None,
        "lab": "root",
        "nlp": "lab",
        "olmo": "nlp",
        "dolma": "nlp",
        "vision": "lab",
        "biology": "lab",
    }
    tree = check_tree(read_budget_file(text, 0), slurm)
    assert set(tree.budgets) == set(slurm) - {"root"}


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_table_in_the_readme_is_what_show_prints() -> None:
    from tests.unit.test_render_show import PLAIN

    assert PLAIN in (ROOT / "README.md").read_text(encoding="utf-8")
