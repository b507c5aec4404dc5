"""`hlolens query`, `schema` and `rules` as a person calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_lens.cli import run
from hlo_lens.facts import discover_passes
from tests.facts.toys import TEXT

SQL = "SELECT name, opcode FROM instructions WHERE opcode <> 'parameter' ORDER BY id"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "toy.hlo"
    path.write_text(TEXT)
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_query_prints_plain_columns_off_a_terminal(file, capsys) -> None:
    code, out, err = call(capsys, "query", file, SQL)
    assert (code, err) == (0, "")
    assert out == "name  opcode\n----  --------\nb     multiply\nc     add\n"


def test_query_as_json_and_csv(file, capsys) -> None:
    _, out, _ = call(capsys, "query", file, SQL, "--format", "json")
    assert json.loads(out) == {
        "columns": ["name", "opcode"],
        "rows": [["b", "multiply"], ["c", "add"]],
    }
    _, out, _ = call(capsys, "query", file, SQL, "--format", "csv")
    assert out == "name,opcode\nb,multiply\nc,add\n"


def test_query_writes_a_file(file, tmp_path, capsys) -> None:
    target = tmp_path / "out.csv"
    code, out, _ = call(capsys, "query", file, SQL, "--format", "csv", "-o", str(target))
    assert (code, out) == (0, "")
    assert target.read_text().startswith("name,opcode\n")


def test_several_files_are_one_database(file, capsys) -> None:
    sql = "SELECT module, count(*) FROM instructions GROUP BY module"
    _, out, _ = call(capsys, "query", file, file, sql, "--format", "csv")
    assert out == "module,count(*)\n0,3\n1,3\n"


def test_a_bad_file_is_told_the_rest_is_answered(file, tmp_path, capsys) -> None:
    code, out, err = call(capsys, "query", str(tmp_path / "no.hlo"), file, SQL)
    assert code == 2
    assert "no such file" in err
    assert out.endswith("c     add\n")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nam FROM instructions", "no column nam, did you mean name?"),
        ("SELECT * FROM instruction", "no table instruction, did you mean instructions?"),
        ("DROP TABLE instructions", "query only reads"),
        ("SELECT 1; SELECT 2", "query takes one statement"),
        ("", "the query is empty"),
    ],
)
def test_bad_sql_is_a_sentence(file, capsys, sql: str, message: str) -> None:
    code, out, err = call(capsys, "query", file, sql)
    assert (code, out) == (2, "")
    assert err.startswith("hlolens: error: ")
    assert message in err


def test_a_forgotten_query(file, capsys) -> None:
    code, _, err = call(capsys, "query", file)
    assert code == 2
    assert f"the SQL behind {file} is missing" in err


def test_the_sql_before_the_file(file, capsys) -> None:
    code, _, err = call(capsys, "query", SQL, file)
    assert code == 2
    assert f'the SQL stands last: hlolens query {file} "{SQL}"' in err


def test_a_forgotten_file(capsys) -> None:
    code, _, err = call(capsys, "query", SQL)
    assert code == 2
    assert "no FILE before the SQL" in err


ENDLESS = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT"


def test_bounds(file, capsys) -> None:
    code, _, err = call(capsys, "query", file, f"{ENDLESS} sum(n) FROM r", "--timeout", "0.1")
    assert code == 2
    assert "stopped after 0.1 s" in err
    code, out, err = call(capsys, "query", "-q", file, f"{ENDLESS} n FROM r", "--max-rows", "2")
    assert (code, out) == (0, "n\n-\n1\n2\n")
    assert "only the first 2 rows are shown" in err


# -- schema ---------------------------------------------------------------------------------------


def test_schema_shows_every_table(capsys) -> None:
    code, out, _ = call(capsys, "schema")
    assert code == 0
    for table in discover_passes().tables:
        assert table.name in out
    assert out.count("innermost source frame") == 1


def test_schema_of_one_table(capsys) -> None:
    code, out, _ = call(capsys, "schema", "findings")
    assert code == 0
    assert "innermost source frame" in out
    assert "note, warning, error" in out


def test_schema_as_json(capsys) -> None:
    _, out, _ = call(capsys, "schema", "members", "--format", "json")
    schema = json.loads(out)
    assert schema["schema_version"] == 1
    [table] = schema["tables"]
    assert table["name"] == "members"
    assert table["columns"][1] == {
        "name": "module",
        "type": "int",
        "role": "identity",
        "unit": None,
        "doc": "position of the module among those loaded",
    }


def test_schema_of_an_unknown_table(capsys) -> None:
    code, out, err = call(capsys, "schema", "membres")
    assert (code, out) == (1, "")
    assert "no table membres; did you mean members?" in err


# -- rules ----------------------------------------------------------------------------------------


def test_rules_are_listed(capsys) -> None:
    code, out, _ = call(capsys, "rules")
    assert code == 0
    for rule in discover_passes().rules.values():
        assert rule.id in out
    _, out, _ = call(capsys, "rules", "--format", "json")
    assert {"id", "level", "summary", "doc"} == set(json.loads(out)[0])


def test_one_rule_is_explained(capsys) -> None:
    code, out, _ = call(capsys, "rules", "pass-failed")
    assert code == 0
    assert "The message names the pass" in " ".join(out.split())


def test_an_unknown_rule(capsys) -> None:
    code, _, err = call(capsys, "rules", "pass-fail")
    assert code == 1
    assert "no rule pass-fail; did you mean pass-failed?" in err


@pytest.mark.parametrize(
    "option", [("--max-rows", "99999999999999999999"), ("--timeout", "nan"), ("--timeout", "-1")]
)
def test_bounds_that_are_none(file, capsys, option: tuple[str, str]) -> None:
    assert run(["query", file, "SELECT 1", *option]) == 2
    assert option[0] in capsys.readouterr().err
