# fish completion for ropeway. Candidates come from the configuration and from cached tools; no server is started.
function __ropeway_complete
    set -l words (commandline -opc)
    set -l raw (commandline -ct)
    set -l current (string unescape -- $raw)
    or set current (string replace -r '^["\']' '' -- $raw)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l lines (command $program complete fish $words "$current" 2>/dev/null)
    switch "$lines[1]"
        case \tfiles
            __fish_complete_path "$raw"
        case \tfolders
            __fish_complete_directories "$raw" ''
        case '*'
            printf '%s\n' $lines
    end
end
complete -c ropeway -f -a '(__ropeway_complete)'
