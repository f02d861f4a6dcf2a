#compdef ropeway
# zsh completion for ropeway. Candidates come from the configuration and from cached tools; no server is started.
_ropeway() {
    local program=${(Q)words[1]} line value
    local -a whole whole_shown open open_shown
    for line in "${(@f)$("${program/#\~\//$HOME/}" complete zsh "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        case $line in
            $'\tfiles') compset -P '[^=]*=@' || compset -P '@'; _files; return ;;
            $'\tfolders') _files -/; return ;;
            '') continue ;;
        esac
        value=${line%%$'\t'*}
        line=${line#*$'\t'}
        # `=` and `.` at the end are followed by more.
        if [[ $value == *[=.] ]]; then
            open+=("$value")
            open_shown+=("$value${line:+  -- $line}")
        else
            whole+=("$value")
            whole_shown+=("$value${line:+  -- $line}")
        fi
    done
    local result=1
    (( $#whole )) && compadd -l -d whole_shown -a whole && result=0
    (( $#open )) && compadd -l -S '' -d open_shown -a open && result=0
    return result
}
if [[ $funcstack[1] == _ropeway ]]; then
    _ropeway "$@"
else
    compdef _ropeway ropeway
fi
