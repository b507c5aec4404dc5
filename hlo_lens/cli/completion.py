"""`hlolens completion SHELL`: the script that completes verbs and options in a shell."""

from __future__ import annotations

import click

from hlo_lens.cli.common import verb


@verb()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash  eval "$(hlolens completion bash)"      in ~/.bashrc
    zsh   eval "$(hlolens completion zsh)"       in ~/.zshrc
    fish  hlolens completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from hlo_lens.cli import COMPLETE_VARIABLE

    completer = get_completion_class(shell)
    assert completer is not None
    script = completer(ctx.find_root().command, {}, "hlolens", COMPLETE_VARIABLE)
    click.echo(script.source_template % script.source_vars())
