"""`paddock completion`: the script for a shell, and the completions that it asks for."""

from collections.abc import Sequence

import click

_BASH = r"""# paddock completion for bash. Put this into ~/.bashrc:  source <(paddock completion bash)
_paddock_completion() {
    local line cur="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            ":files") compopt -o filenames 2>/dev/null
                while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$cur") ;;
            ":nospace") compopt -o nospace 2>/dev/null ;;
            *) COMPREPLY+=("$line") ;;
        esac
    done < <("$1" completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _paddock_completion paddock
"""
_ZSH = r"""#compdef paddock
# paddock completion for zsh. Put this into ~/.zshrc:  source <(paddock completion zsh)
_paddock() {
    local line
    local -a found unspaced
    local space=1
    while IFS= read -r line; do
        case "$line" in
            ":files") _files ;;
            ":nospace") space=0 ;;
            *) found+=("$line") ;;
        esac
    done < <("${words[1]}" completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#found} )) || return
    if (( space )); then compadd -- "${found[@]}"; else compadd -S '' -- "${found[@]}"; fi
}
compdef _paddock paddock
"""
_FISH = r"""# paddock completion for fish. Save it:  paddock completion fish > ~/.config/fish/completions/paddock.fish
function __paddock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (command $words[1] completion --words -- $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case ":files"
                __fish_complete_path "$current"
            case ":nospace"
            case "*"
                echo $line
        end
    end
end
complete -c paddock -f -a "(__paddock_complete)"
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@click.command("completion")
@click.argument("shell", nargs=-1, metavar="bash|zsh|fish", type=click.UNPROCESSED)
@click.option(
    "--words", "completing", is_flag=True, hidden=True, help="Print the completions of these words; for the scripts."
)
@click.pass_context
def completion_(ctx: click.Context, shell: Sequence[str], completing: bool) -> None:
    """Print the shell script that completes commands, options, kinds and object names.

    \b
    source <(paddock completion bash)
    """
    if completing:
        from controller.cli.complete import candidates

        root = ctx.find_root()
        for candidate in candidates(root.command, list(shell), root.obj.address, root.obj.context):
            click.echo(candidate)
        return
    if len(shell) != 1 or shell[0] not in SCRIPTS:
        raise click.UsageError(f"no such shell; name one of {', '.join(SCRIPTS)}")
    click.echo(SCRIPTS[shell[0]], nl=False)
