# bash completion for ropeway. Candidates come from the configuration and from cached tools; no server is started.
_ropeway() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            $'\tfiles') compopt +o nospace -o default 2>/dev/null; return ;;
            $'\tfolders') compopt +o nospace -o dirnames 2>/dev/null; return ;;
            ?*) COMPREPLY+=("$line") ;;
        esac
    done < <("${1/#\~\//$HOME/}" complete bash "$COMP_WORDBREAKS" "${COMP_LINE:0:$COMP_POINT}" 2>/dev/null)
}
complete -o nospace -F _ropeway ropeway
