"""`nuncius doctor`: look for problems and recommend what to do."""

import asyncio

import typer

from nuncius.cli import output
from nuncius.cli.connection import DEFAULT_URL, Output, Url
from nuncius.cli.output import Format
from nuncius.cli.stores import DataDir, Store, one_store
from nuncius.store import environment


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    store: Store = None,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    form: Output = Format.TABLE,
) -> None:
    """Look for problems and say what to do about them. Changes nothing, starts nothing."""
    from nuncius.cli.commands.doctor import checks  # the broker's code, which other commands do not need

    data_dir, store = one_store(data_dir, store)
    findings = [checks.python(), *checks.variables()]
    if store is None:
        directory = (data_dir or environment.default_data_dir()).absolute()
        findings += [checks.programs(), *checks.data_directory(directory)]
        store = checks.embedded_store(directory, findings)
    if store is not None:
        findings += asyncio.run(checks.database(store))
    findings.append(asyncio.run(checks.node(url)))
    if form is Format.JSON:
        output.write_document(findings)
    else:
        for finding in findings:
            output.write(f"{finding.state:<4}  {finding.check:<14}  {output.printable(finding.detail)}")
            if finding.advice:
                output.write(f"      {'':<14}  {output.printable(finding.advice)}")
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(1)
