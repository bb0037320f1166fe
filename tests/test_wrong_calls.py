"""The table of wrong and odd calls: each gets the message that it must get."""

import pytest
import wrong_calls as table


@pytest.mark.parametrize(("code", "message"), table.PYTHON)
def test_a_call_is_answered_so_that_it_can_be_mended(code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = table.said_by_python(code, table.namespace())
    assert table.holds(said, message), said


@pytest.mark.parametrize(("code", "message"), table.TABLES)
def test_a_call_with_a_table_is_answered_so_that_it_can_be_mended(code, message):
    pd = pytest.importorskip("pandas")
    names = table.namespace()
    names["table"] = pd.DataFrame(names["U"], columns=list("abc"))
    names["series"] = pd.Series(names["b"])
    assert table.holds(said := table.said_by_python(code, names), message), said


@pytest.mark.parametrize(("arguments", "message"), table.COMMANDS)
def test_a_command_is_answered_so_that_it_can_be_mended(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.write_files(tmp_path)
    said = table.said_by_command(arguments)
    assert table.holds(said, message), said


def test_the_table_is_long():
    assert len(table.PYTHON) + len(table.TABLES) + len(table.COMMANDS) >= 60
