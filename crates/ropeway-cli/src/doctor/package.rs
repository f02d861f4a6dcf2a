//! How to install common commands.

/// Returns what to install for a missing command, and how.
pub(super) fn advice(command: &str) -> Option<String> {
    let (package, how) = match command {
        "node" | "npx" | "npm" => ("Node.js", "`nvm install --lts`, or https://nodejs.org/en/download"),
        "pnpm" | "yarn" | "corepack" => ("Node.js with corepack", "`corepack enable`, after https://nodejs.org"),
        "uv" | "uvx" => ("uv", "`curl -LsSf https://astral.sh/uv/install.sh | sh`, or `pipx install uv`"),
        "python" => ("Python", "`apt install python3` or `brew install python`; or use `python3`"),
        "python3" | "pip" | "pip3" => ("Python", "`apt install python3 python3-pip`, or `brew install python`"),
        "pipx" => ("pipx", "`python3 -m pip install --user pipx`"),
        "poetry" => ("Poetry", "`pipx install poetry`"),
        "docker" => ("Docker", "https://docs.docker.com/engine/install"),
        "podman" => ("Podman", "`apt install podman`, or `brew install podman`"),
        "bun" | "bunx" => ("Bun", "`curl -fsSL https://bun.sh/install | bash`"),
        "deno" => ("Deno", "`curl -fsSL https://deno.land/install.sh | sh`"),
        "cargo" => ("Rust", "`curl https://sh.rustup.rs -sSf | sh`"),
        "go" => ("Go", "https://go.dev/doc/install"),
        "java" => ("Java", "`apt install default-jre`, or `brew install openjdk`"),
        "dotnet" | "dnx" => (".NET", "https://dotnet.microsoft.com/download"),
        "ruby" | "gem" | "bundle" => ("Ruby", "`apt install ruby`, or `brew install ruby`"),
        "php" | "composer" => ("PHP", "`apt install php-cli`, or `brew install php`"),
        _ => return None,
    };
    Some(format!("install {package}: {how}"))
}
